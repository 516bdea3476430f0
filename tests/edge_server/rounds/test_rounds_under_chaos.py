"""Both machines joined by a network that loses, doubles and reorders, with devices that die and return."""

import itertools
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edge_server.rounds.events import CloseRound, PlanRound
from edge_server.rounds.machine import Buffering, RoundRules
from edge_server.rounds.participant import Status
from schemas.messages import Update
from schemas.values import Reason
from tests.edge_server.rounds.world import World

ANY = st.integers(0, 10_000)
DEVICE = st.sampled_from(["d0", "d1", "d2"])
ROUNDS = 3
PATIENT = {"rounds": ROUNDS, "deadline_s": 600, "rejoin_s": 10, "attempts": 10**6}


class JoinedMachines(RuleBasedStateMachine):
    """No update counts twice, no round is stuck, nothing raises, whatever happens in between."""

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
    def packets_are_doubled(self, count: int, index: int) -> None:
        for turn in range(count):
            self.world.double(index + turn)

    @rule(turns=st.integers(1, 60))
    def all_is_well_for_a_while(self, turns: int) -> None:
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

    def there(self) -> bool:
        return self.world is not None

    @precondition(there)
    @invariant()
    def every_round_is_aggregated_once_and_in_order(self) -> None:
        numbers = [close.round for close in self.world.closed]
        assert numbers == list(range(1, len(numbers) + 1))

    @precondition(there)
    @invariant()
    def what_counts_is_its_devices_own_and_counts_once(self) -> None:
        for close in self.world.closed:
            assert all(update.device == device for device, update in close.updates.items())
            parts = [*close.updates, *close.dropped, *close.rejected]
            assert sorted(parts) == list(close.selected)
        assert set(self.times_counted().values()) <= {1}

    @precondition(there)
    @invariant()
    def one_planning_or_closing_is_under_way_at_most(self) -> None:
        assert sum(isinstance(job, PlanRound | CloseRound) for job in self.world.todo) <= 1

    @precondition(there)
    @invariant()
    def the_kept_counts_are_those_of_the_participants(self) -> None:
        participants = self.world.federation.participants
        statuses = [participant.status for participant in participants.values()]
        assert {status: participants.counts[status] for status in Status} == {
            status: statuses.count(status) for status in Status
        }
        assert list(participants) == [participant.device for participant in participants.values()]

    @precondition(there)
    @invariant()
    def no_blob_in_use_is_thrown_away(self) -> None:
        # The only way in which a checked update is not sound here; a device's request for a blob that is
        # gone would raise.
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
        # Losses are repaired by asking again within seconds, not by waiting for the deadline of 600.
        assert self.world.now - began < 300
        self.every_confirmed_update_counts()

    def confirmed(self) -> list[Update]:
        settled = [one for node in self.world.nodes.values() for one in node.settled if one.refusal is None]
        return [one.result for one in settled if isinstance(one.result, Update)]

    def every_confirmed_update_counts(self) -> None:
        """Of each round, in the attempt that was not abandoned."""
        for update in self.confirmed():
            updates = self.world.closed[update.round - 1].updates
            if update.attempt in {one.attempt for one in updates.values()}:
                assert updates[update.device].blob == update.blob


class InRounds(JoinedMachines):
    """Synchronous: what counts was made for the round, at one planning of it."""

    @precondition(JoinedMachines.there)
    @invariant()
    def what_counts_was_made_for_its_round(self) -> None:
        for close in self.world.closed:
            assert all(update.round == close.round for update in close.updates.values())
            assert set(close.staleness.items()) == {(device, 0) for device in close.updates}

    @precondition(JoinedMachines.there)
    @invariant()
    def what_counts_was_made_for_one_attempt_and_attempts_only_grow(self) -> None:
        attempts = [{update.attempt for update in close.updates.values()} for close in self.world.closed]
        assert all(len(attempt) == 1 for attempt in attempts)
        assert all(max(one) < min(other) for one, other in itertools.pairwise(attempts))


class OverSelecting(InRounds):
    """Three are asked where two are needed: no more than two count."""

    played = RoundRules(**PATIENT, min_clients=2, quorum=0.3, over_select=1.5)

    @precondition(JoinedMachines.there)
    @invariant()
    def no_more_than_needed_count(self) -> None:
        assert all(len(close.updates) <= 2 for close in self.world.closed)


class Buffered(JoinedMachines):
    """Buffered: what counts may be of an earlier round, but of none too early."""

    played = RoundRules(**PATIENT, buffering=Buffering(size=2, max_staleness=1, concurrency=2))

    @precondition(JoinedMachines.there)
    @invariant()
    def nothing_that_counts_is_staler_than_allowed(self) -> None:
        for close in self.world.closed:
            lag = {device: close.round - update.round for device, update in close.updates.items()}
            assert close.staleness == lag
            assert set(lag.values()) <= set(range(self.played.buffering.max_staleness + 1))

    @precondition(JoinedMachines.there)
    @invariant()
    def no_more_devices_train_than_allowed(self) -> None:
        actions = [one.assignment.task.action for one in self.world.federation.at_work]
        assert actions.count("train") <= self.played.buffering.concurrency

    def every_confirmed_update_counts(self) -> None:
        """No attempt is thrown away here: whatever was confirmed is aggregated."""
        for update in self.confirmed():
            assert self.times_counted()[update.device, update.attempt] == 1


class BufferedWithoutLag(Buffered):
    """Every closing ends all work of before."""

    played = RoundRules(**PATIENT, min_clients=2, buffering=Buffering(size=2, max_staleness=0, concurrency=3))


THOROUGHLY = settings(
    max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
TestInRounds = InRounds.TestCase
TestOverSelecting = OverSelecting.TestCase
TestBuffered = Buffered.TestCase
TestBufferedWithoutLag = BufferedWithoutLag.TestCase
TestInRounds.settings = TestOverSelecting.settings = THOROUGHLY
TestBuffered.settings = TestBufferedWithoutLag.settings = THOROUGHLY
