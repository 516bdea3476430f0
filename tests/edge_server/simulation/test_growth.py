"""Data that grows in virtual time: what devices count, what opens rounds, and the same bits after a stop."""

from pathlib import Path

import numpy as np
import pytest

from edge_client.data.drift import DriftResult, ExampleRecord
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.data.local import LocalData
from edge_server.simulation.population import Counts, Growth, arrival_times, counts_at, in_order, next_arrival
from schemas.errors import ConfigError
from schemas.values import DriftFinding
from tests.edge_server.simulation.small import StopAfter, history, run
from tests.slow import slow

FOUND = DriftFinding(statistic="loss", p_value=0.001, examples=4)
GROWS = (
    "num-clients=2",
    "simulation.hold-out=0.2",
    "simulation.arrives-s={1=100,8=200}",
    "simulation.until-s=300",
    "federation.rounds=0",
    "first-rounds=4",
    "rounds-per-opening=2",
    "learning-rate=0.1",
    "local-epochs=3",
)


def test_examples_are_counted_as_they_come() -> None:
    labels, indices = np.array([0, 2, 1, 2, 0]), np.array([4, 3, 1, 2])
    ordered, times = in_order(indices, arrival_times(labels, indices, {2: 10.0, 1: 5.0}))
    assert (ordered.tolist(), times.tolist()) == ([4, 2, 3, 1], [0, 5, 10, 10])
    arrivals = (times, np.array([0.0, 7.0]))
    assert [counts_at(arrivals, t) for t in (0, 5, 9.9, 10)] == [(1, 1), (2, 1), (2, 2), (4, 2)]
    later = [next_arrival(arrivals, counts_at(arrivals, t)) for t in (0, 5, 7, 10)]
    assert later == [5, 7, 10, float("inf")]


def test_a_device_tests_what_has_come_since_its_last_training() -> None:
    seen: list[tuple[int, int, int]] = []

    def test(data: LocalData, record: ExampleRecord) -> DriftResult:
        fresh = [int(record.is_untested(marks).sum()) for marks in (record.train, record.held)]
        seen.append((*fresh, int(record.is_new(record.train).sum())))
        return DriftResult(record.train, FOUND if len(seen) == 2 else None)

    growth = Growth(there=Counts(10, 2)).after_training(Counts(10, 2), 1.0)
    for there in (Counts(15, 3), Counts(25, 5), Counts(26, 5)):
        growth = growth.grown(there, lambda _: None, test)  # type: ignore[arg-type, return-value]
    # Five new, one held out; then what no test has compared; the alarm stays.
    assert seen == [(5, 1, 5), (10, 2, 15), (1, 0, 16)]
    assert (growth.new, growth.alarm) == (16, DriftAlarm(FOUND))
    trained = growth.after_training(Counts(25, 5), 2.0)
    assert (trained.new, trained.known) == (1, (25, 5))
    assert trained.alarm == DriftAlarm(FOUND, first=2.0, lowest=2.0)


@pytest.mark.parametrize(
    ("when", "rounds"),
    [slow("when=drift", range(10, 40)), ("when=new-data", range(8, 9)), slow("when=every-s", range(9, 12))],
)
def test_rounds_begin_when_digits_come(tmp_path: Path, when: str, rounds: range) -> None:
    out = tmp_path / "run"
    assert run(out, "fedavg", *GROWS, when, "every-s=90", "new-examples=50").outcome == "finished"
    times = [line["virtual_time_s"] for line in history(out)]
    assert len(times) in rounds
    # Four rounds at once, and nothing until the ones or the clock.
    assert times[3] < 10
    assert times[4] > 90
    if when != "when=every-s":
        assert times[4] > 100
        assert times[-1] > 200


@pytest.mark.parametrize("recipe", ["fedavg", slow("attending")])
def test_a_stopped_run_goes_on_to_the_same_bits(tmp_path: Path, recipe: str) -> None:
    words = (*GROWS, "when=drift", "local-epochs=1")
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    run(whole, recipe, *words)
    assert run(stopped, recipe, *words, watcher=StopAfter(6)).outcome == "interrupted"
    assert run(stopped, recipe, *words, resume=True).outcome == "finished"
    last = f"models/round-{len(history(whole)):04d}/state.safetensors"
    assert (stopped / last).read_bytes() == (whole / last).read_bytes()
    assert [line["selected"] for line in history(stopped)] == [line["selected"] for line in history(whole)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["simulation.arrives-s={12=5}"], "has no class 12"),
        (["simulation.arrives-s={8=5}", "model.task=anomaly"], "this task has none"),
        (
            ["simulation.arrives-s={8=5,9=5}", "partition=shards", "shards=1", "num-clients=10"],
            "has no example at the start",
        ),
        (["federation.rounds=0"], "simulation.until-s"),
        (["when=new-data", "simulation.until-s=5"], "arrives-s and until-s"),
    ],
)
def test_growth_that_cannot_be_is_refused(tmp_path: Path, words: list[str], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        run(tmp_path / "run", "fedavg", *words)
