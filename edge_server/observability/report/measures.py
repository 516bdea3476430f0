"""Measures of a run: the columns of AdaFL's tables 1 and 2 (Chen et al. 2021, section 3.2).

Figures are those of the learning task's leading metric, in the papers accuracy, over the tested rounds, which
are fewer than all where `evaluate-every` is above 1.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from edge_client.data.tasks.learning_task import Metric
from edge_server.observability.figures import best_of, leading_metric, tested_figures
from edge_server.storage.records import RoundRecord, Summary

STOPPING_WINDOW = 5
"""Table 2: "the average test accuracy of the last 5 rounds must exceed the target test accuracy"."""
BYTES_PER_PARAMETER = 4


@dataclass(frozen=True)
class Reached:
    """The round in which a target was reached, and the cost up to it.

    `updates` is the sum of gamma M, one relative unit per update whatever its size (section 3.2.2);
    `models` is the uplink in full models of 4 bytes per parameter.
    """

    round: int
    updates: float
    models: float


@dataclass(frozen=True)
class RunMeasures:
    """The measures of one run; shares are 0 to 1, and figures None for a run that was never tested."""

    average: float | None
    best: float | None
    final: float | None
    reached: Mapping[float, Reached | None] = field(default_factory=dict)
    updates: int = 0
    models: float = 0.0
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    virtual_time_s: float | None = None
    duration_s: float = 0.0
    rejected: int = 0


def measure(
    history: Sequence[RoundRecord], summary: Summary, *, targets: Sequence[float] = (), window: int = 10
) -> RunMeasures:
    """The measures of one run; the average is over the tested ones of its last `window` rounds."""
    metric = leading_metric(history)
    found = tested_figures(history, metric)
    last = tested_figures((record for record in history if record.round > history[-1].round - window), metric)
    return RunMeasures(
        average=statistics.fmean(last) if last else None,
        best=best_of(metric, found),
        final=found[-1] if found else None,
        reached={target: first_reached(history, summary.parameters, target, metric) for target in targets},
        updates=sum(len(record.selected) for record in history),
        models=_models(history, summary.parameters),
        uplink_bytes=sum(record.uplink_bytes for record in history),
        downlink_bytes=sum(record.downlink_bytes for record in history),
        virtual_time_s=history[-1].virtual_time_s if history else None,
        duration_s=summary.duration_s,
        rejected=sum(len(record.rejected) for record in history),
    )


def first_reached(
    history: Sequence[RoundRecord], parameters: int, target: float, metric: Metric
) -> Reached | None:
    """The first round in which the mean of the last five tested figures is better than `target`, if any."""
    places = [index for index, record in enumerate(history) if metric.name in record.test_metrics]
    found = tested_figures(history, metric)
    for end in range(STOPPING_WINDOW, len(found) + 1):
        if metric.worsening(target, statistics.fmean(found[end - STOPPING_WINDOW : end])) < 0:
            until = history[: places[end - 1] + 1]
            updates = sum(len(record.selected) for record in until)
            return Reached(until[-1].round, updates, _models(until, parameters))
    return None


def _models(history: Sequence[RoundRecord], parameters: int) -> float:
    sent = sum(record.uplink_bytes for record in history)
    return sent / (BYTES_PER_PARAMETER * parameters) if parameters else 0.0


def averaging_window(rounds: int, *, average_rounds: int, average_share: float | None) -> int:
    """The number of last rounds that the average is over."""
    return average_rounds if average_share is None else max(1, round(rounds * average_share))
