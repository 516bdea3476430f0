"""Both machines joined by a network that loses, doubles and reorders, with devices that die and return."""

import itertools

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_server.rounds import RoundRules
from schemas.messages import Update
from tests.rounds.world import World

ANY = st.integers(0, 10_000)
DEVICE = st.sampled_from(["d0", "d1", "d2"])


class JoinedMachines(RuleBasedStateMachine):
    """No update counts twice, no round is stuck, nothing raises, whatever happens in between."""

    @initialize(seed=ANY, chunks=st.integers(1, 40))
    def begin(self, seed: int, chunks: int) -> None:
        rules = RoundRules(rounds=3, min_clients=2, quorum=0.3, deadline_s=600, rejoin_s=10, attempts=10**6)
        self.world = World(3, rules, seed, blob_chunks=chunks)

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
    def a_device_returns(self, device: str) -> None:
        if not self.world.nodes[device].online:
            self.world.connect(device)

    @rule(seconds=st.floats(0.1, 40))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @invariant()
    def every_round_is_aggregated_once_and_in_order(self) -> None:
        if hasattr(self, "world"):
            numbers = [close.round for close in self.world.closed]
            assert numbers == list(range(1, len(numbers) + 1))

    @invariant()
    def what_counts_was_made_for_its_round(self) -> None:
        if hasattr(self, "world"):
            for close in self.world.closed:
                for device, update in close.updates.items():
                    assert (update.device, update.round) == (device, close.round)
                    assert update.blob.digest in self.world.disk.blobs

    @invariant()
    def what_counts_was_made_for_one_attempt_and_attempts_only_grow(self) -> None:
        if hasattr(self, "world"):
            attempts = [{update.attempt for update in close.updates.values()} for close in self.world.closed]
            assert all(len(one) == 1 for one in attempts)
            assert all(max(one) < min(other) for one, other in itertools.pairwise(attempts))

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        began = self.world.now
        self.world.run_fairly()
        assert self.world.outcome == "finished"
        assert [close.round for close in self.world.closed] == [1, 2, 3]
        # Losses are repaired by asking again within seconds, not by waiting for the deadline of 600.
        assert self.world.now - began < 300
        self.every_confirmed_update_counts()

    def every_confirmed_update_counts(self) -> None:
        """Of each round, in the attempt that was not abandoned."""
        for device, node in self.world.nodes.items():
            for settled in node.settled:
                if isinstance(settled.result, Update) and settled.refusal is None:
                    updates = self.world.closed[settled.result.round - 1].updates
                    if settled.result.attempt in {update.attempt for update in updates.values()}:
                        assert updates[device].blob == settled.result.blob


TestJoinedMachines = JoinedMachines.TestCase
TestJoinedMachines.settings = settings(
    max_examples=80, stateful_step_count=50, deadline=None, suppress_health_check=list(HealthCheck)
)
