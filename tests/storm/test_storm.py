"""A small storm: some seeds, the same result each time, and proof that bugs are found."""

import os
import subprocess
import sys

import pytest

from tests.slow import mark_slow, slow
from tests.storm.campaign import play_seed
from tests.storm.disk import Killed, Machine
from tests.storm.faults import SERVER, Fault, Scenario
from tests.storm.mutants import MUTANTS
from tests.storm.seeds import faults_of, scenario_of
from tests.storm.shrink import as_row, shrink
from tests.storm.world import play

MIXED = 1597
"""A seed with a site, an aggregator, a standby and compressed updates."""


@pytest.mark.parametrize("seed", [0, *map(slow, range(5, 40, 5))])
def test_no_seed_violates_an_invariant(seed: int) -> None:
    found = {each: play_seed(each)[2].violation for each in range(seed, seed + 5)}
    assert not {each: violation for each, violation in found.items() if violation}


def test_a_seed_is_the_same_each_time() -> None:
    assert play_seed(7) == play_seed(7)


@mark_slow
def test_a_seed_is_the_same_in_each_process() -> None:
    play_and_print = f"from tests.storm.campaign import play_seed; print(play_seed({MIXED})[2])"
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    child = subprocess.run(
        [sys.executable, "-c", play_and_print], env=environment, capture_output=True, text=True, check=True
    )
    assert child.stdout.strip() == str(play_seed(MIXED)[2])


def test_a_run_without_faults_takes_no_longer_than_its_work() -> None:
    outcome = play(Scenario(1, devices=3, rounds=2), [])
    assert (outcome.violation, outcome.outcome) == (None, "finished")
    assert outcome.seconds < 30


@pytest.mark.parametrize("sites", [("s0", "s0", ""), ("s0", "s1", "s1"), ("s0", "s0.in")])
def test_sites_without_faults_end_in_time(sites: tuple[str, ...]) -> None:
    outcome = play(Scenario(1, devices=len(sites), sites=sites), [])
    assert (outcome.violation, outcome.outcome, outcome.seconds < 20) == (None, "finished", True)


def test_aggregators_that_die_in_their_calls_change_nothing() -> None:
    deaths = [Fault("aggregator-death", 0.5 + second, SERVER, size=second) for second in range(12)]
    scenario = Scenario(1, devices=3, aggregators=2)
    assert play(scenario, deaths).violation is None


@mark_slow
def test_a_mutant_is_found_and_its_seed_shrinks() -> None:
    with MUTANTS["recovery-round-behind"].in_place():
        # Seed 0 fails too, and takes four times as long to shrink.
        seed = next(seed for seed in range(1, 200) if play_seed(seed)[2].violation)
        scenario = scenario_of(seed)
        faults = faults_of(scenario)
        small, few = shrink(scenario, faults, lambda *case: play(*case).violation is not None)
        assert len(few) <= min(2, len(faults))
        printed = as_row(small, few, "")
    ((scenario, *faults),) = eval(
        f"({printed})", {"Fault": Fault, "Scenario": Scenario, "found": lambda *parts: parts}
    )
    assert (scenario, faults) == (small, [*few])
    assert play(scenario, faults).violation is None


@pytest.mark.parametrize("name", MUTANTS)
def test_every_mutant_fits_the_code(name: str) -> None:
    with MUTANTS[name].in_place():
        pass


def test_a_dead_process_does_nothing_more() -> None:
    machine = Machine("server", "/nowhere", crash_after=0)
    for _ in range(2):
        with pytest.raises(Killed):
            machine.operate()
