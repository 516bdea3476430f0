"""Server and devices on a network that loses, duplicates and reorders packets; devices die and return."""

import itertools
from collections import Counter

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from edge_server.rounds.events import CloseRound, PlanRound
from edge_server.rounds.machine import Buffering, RoundRules
from edge_server.rounds.participant import Status
from schemas.errors import Reason
from schemas.messages import Update
from tests.edge_server.rounds.world import World
from tests.slow import mark_slow

ANY = st.integers(0, 10_000)
DEVICE = st.sampled_from(["d0", "d1", "d2"])
ROUNDS = 3
PATIENT = {"rounds": ROUNDS, "deadline_s": 600, "rejoin_s": 10, "attempts": 10**6}


class JoinedMachines(RuleBasedStateMachine):
    """Under any sequence of events, no update counts twice, no round gets stuck and nothing raises."""

    played = RoundRules(**PATIENT, min_clients=2, quorum=0.3)
    world: World | None = None

    @initialize(seed=ANY, chunks=st.integers(1, 40), shared=st.booleans())
    def begin(self, seed: int, chunks: int, shared: bool) -> None:
        self.world = World(3, self.played, seed, blob_chunks=chunks, shared=shared)

    @rule(count=st.integers(1, 60), index=ANY)
    def packets_arrive(self, count: int, index: int) -> None:
        for turn in range(count):
            self.world.deliver(index * (turn + 1))

    @rule(count=st.integers(1, 20), index=ANY)
    def packets_are_lost(self, count: int, index: int) -> None:
        for turn in range(count):
            self.world.lose(index * (turn + 1))

    @rule(count=st.integers(1, 5), index=ANY)
    def packets_are_duplicated(self, count: int, index: int) -> None:
        for turn in range(count):
            self.world.double(index + turn)

    @rule(turns=st.integers(1, 60))
    def the_network_is_good_for_a_while(self, turns: int) -> None:
        for _ in range(turns):
            self.world.one_fair_turn()

    @rule(turns=st.integers(1, 100), loss=st.floats(0.05, 0.6))
    def the_network_is_bad_for_a_while(self, turns: int, loss: float) -> None:
        for _ in range(turns):
            self.world.one_bad_turn(loss)

    @rule(device=DEVICE)
    def work_ends(self, device: str) -> None:
        self.world.finish_work(device)

    @rule(device=DEVICE)
    def work_fails(self, device: str) -> None:
        self.world.fail_work(device)

    @rule(index=ANY)
    def a_job_of_the_server_ends(self, index: int) -> None:
        self.world.finish_job(index)

    @rule(device=DEVICE)
    def a_link_is_cut(self, device: str) -> None:
        self.world.cut(device)

    @rule(device=DEVICE)
    def a_process_dies(self, device: str) -> None:
        self.world.kill(device)

    @rule(device=DEVICE)
    def a_process_dies_and_remembers(self, device: str) -> None:
        self.world.kill_and_remember(device)

    @rule(device=DEVICE)
    def a_device_returns(self, device: str) -> None:
        if not self.world.nodes[device].online:
            self.world.connect(device)

    @rule(seconds=st.floats(0.1, 40))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    def initialized(self) -> bool:
        return self.world is not None

    @precondition(initialized)
    @invariant()
    def every_round_is_aggregated_once_and_in_order(self) -> None:
        numbers = [close.round for close in self.world.closed]
        assert numbers == list(range(1, len(numbers) + 1))

    @precondition(initialized)
    @invariant()
    def counted_updates_belong_to_their_devices_and_count_once(self) -> None:
        for close in self.world.closed:
            assert all(update.device == device for device, update in close.updates.items())
            parts = [*close.updates, *close.dropped, *close.rejected]
            assert sorted(parts) == list(close.selected)
        assert set(self.times_counted().values()) <= {1}

    @precondition(initialized)
    @invariant()
    def at_most_one_planning_or_closing_is_in_progress(self) -> None:
        assert sum(isinstance(job, PlanRound | CloseRound) for job in self.world.todo) <= 1

    @precondition(initialized)
    @invariant()
    def the_status_counts_match_the_participants(self) -> None:
        participants = self.world.federation.participants
        statuses = [participant.status for participant in participants.values()]
        assert {status: participants.counts[status] for status in Status} == {
            status: statuses.count(status) for status in Status
        }
        assert list(participants) == [participant.device for participant in participants.values()]

    @precondition(initialized)
    @invariant()
    def no_blob_in_use_is_deleted(self) -> None:
        # Here only a deleted blob can fail its check; a device's request for a deleted blob would raise.
        assert Reason.DIGEST_MISMATCH not in {note.reason for note in self.world.notes}

    def times_counted(self) -> Counter[tuple[str, int]]:
        updates = [update for close in self.world.closed for update in close.updates.values()]
        return Counter((update.device, update.attempt) for update in updates)

    def teardown(self) -> None:
        if self.world is None:
            return
        began = self.world.now
        self.world.run_fairly()
        assert self.world.outcome == "finished"
        assert [close.round for close in self.world.closed] == list(range(1, ROUNDS + 1))
        # Losses are repaired by new requests within seconds, not only at the deadline of 600 s.
        assert self.world.now - began < 300
        self.every_confirmed_update_counts()

    def confirmed(self) -> list[Update]:
        settled = [command for node in self.world.nodes.values() for command in node.settled]
        results = [command.result for command in settled if command.refusal is None]
        return [result for result in results if isinstance(result, Update)]

    def every_confirmed_update_counts(self) -> None:
        """Check the confirmed updates of each round's attempt that was not abandoned."""
        for update in self.confirmed():
            updates = self.world.closed[update.round - 1].updates
            if update.attempt in {counted.attempt for counted in updates.values()}:
                assert updates[update.device].blob == update.blob


class InRounds(JoinedMachines):
    """Synchronous rounds: counted updates were made for the round and for a single attempt."""

    @precondition(JoinedMachines.initialized)
    @invariant()
    def counted_updates_were_made_for_their_round(self) -> None:
        for close in self.world.closed:
            assert all(update.round == close.round for update in close.updates.values())
            assert set(close.staleness.items()) == {(device, 0) for device in close.updates}

    @precondition(JoinedMachines.initialized)
    @invariant()
    def each_round_counts_one_attempt_and_attempts_increase(self) -> None:
        attempts = [{update.attempt for update in close.updates.values()} for close in self.world.closed]
        assert all(len(attempt) == 1 for attempt in attempts)
        assert all(max(earlier) < min(later) for earlier, later in itertools.pairwise(attempts))


class OverSelecting(InRounds):
    """Three devices are asked where two are needed: at most two count."""

    played = RoundRules(**PATIENT, min_clients=2, quorum=0.3, over_select=1.5)

    @precondition(JoinedMachines.initialized)
    @invariant()
    def at_most_the_needed_updates_count(self) -> None:
        assert all(len(close.updates) <= 2 for close in self.world.closed)


class Buffered(JoinedMachines):
    """Buffered rounds: counted updates may be from earlier rounds, up to the allowed staleness."""

    played = RoundRules(**PATIENT, buffering=Buffering(size=2, max_staleness=1, concurrency=2))

    @precondition(JoinedMachines.initialized)
    @invariant()
    def nothing_that_counts_is_staler_than_allowed(self) -> None:
        for close in self.world.closed:
            lag = {device: close.round - update.round for device, update in close.updates.items()}
            assert close.staleness == lag
            assert set(lag.values()) <= set(range(self.played.buffering.max_staleness + 1))

    @precondition(JoinedMachines.initialized)
    @invariant()
    def no_more_devices_train_than_allowed(self) -> None:
        actions = [part.assignment.task.action for part in self.world.federation.at_work]
        assert actions.count("train") <= self.played.buffering.concurrency

    def every_confirmed_update_counts(self) -> None:
        """Buffered rounds discard no attempt: every confirmed update is aggregated."""
        for update in self.confirmed():
            assert self.times_counted()[update.device, update.attempt] == 1


class BufferedWithoutLag(Buffered):
    """Each closed round ends all earlier work."""

    played = RoundRules(**PATIENT, min_clients=2, buffering=Buffering(size=2, max_staleness=0, concurrency=3))


BRIEFLY = settings(
    max_examples=10, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestInRounds = InRounds.TestCase
TestOverSelecting = OverSelecting.TestCase
TestBuffered = Buffered.TestCase
TestBufferedWithoutLag = BufferedWithoutLag.TestCase
TestInRounds.settings = TestOverSelecting.settings = BRIEFLY
TestBuffered.settings = TestBufferedWithoutLag.settings = BRIEFLY


@mark_slow
@pytest.mark.parametrize("machine", [InRounds, OverSelecting, Buffered, BufferedWithoutLag])
def test_more_sequences_of_events(machine: type[JoinedMachines]) -> None:
    run_state_machine_as_test(machine, settings=settings(BRIEFLY, max_examples=300))
