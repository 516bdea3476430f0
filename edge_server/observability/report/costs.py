"""Measures of a run, and its cost: bytes, updates as AdaFL counts them, time, multiply-accumulates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from edge_client.data.tasks.learning_task import Metric
from edge_server.config.units import UNKNOWN, bytes_text, count_text, duration_text, percent_text, si_text
from edge_server.observability.figures import best_of, leading_metric, tested_figures
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Cell, Paragraph, Section, numbers, table, words
from edge_server.storage.records import RoundRecord, Summary
from edge_server.strategy.groups.widths import own_probability, step_share
from schemas.strategy import Component
from schemas.values import TRAINING_PASSES

# Measures of a run: the columns of AdaFL's tables 1 and 2 (Chen et al. 2021, section 3.2). Figures are
# those of the learning task's leading metric, in the papers accuracy, over the tested rounds, which are fewer
# than all where `evaluate-every` is above 1.

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
        average=fmean(last) if last else None,
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
        if metric.worsening(target, fmean(found[end - STOPPING_WINDOW : end])) < 0:
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


def cost_section(run: RunContents) -> Section:
    if not run.history:
        return Section("Costs", (Paragraph("No round was closed, so there are no costs."),))
    rounds = len(run.history)
    cost = measure(run.history, run.summary)
    macs = training_macs(run)
    durations, virtual = (
        [record.duration_s for record in run.history],
        " (virtual)" if run.is_simulated else "",
    )
    rows = [
        _row(
            "sent by the server (a broadcast counts once)",
            bytes_text(run.summary.downlink_bytes),
            bytes_text(cost.downlink_bytes / rounds),
        ),
        _row(
            "received by the server",
            bytes_text(run.summary.uplink_bytes),
            bytes_text(cost.uplink_bytes / rounds),
        ),
        _row("received by devices over their links", _total(run, "downlink_bytes"), ""),
        _row("sent by devices over their links", _total(run, "uplink_bytes"), ""),
        _row("updates requested", count_text(cost.updates), f"{cost.updates / rounds:.3g}"),
        _row("share of all devices in every round", _share(run, cost.updates), ""),
        _row("received data in full models", f"{cost.models:.3g}", f"{cost.models / rounds:.3g}"),
        _row(f"time of the rounds{virtual}", duration_text(sum(durations)), duration_text(fmean(durations))),
        _row("longest round", duration_text(max(durations)), ""),
        _row("duration of the run", duration_text(run.summary.duration_s), ""),
        _row(
            "multiply-accumulates of training",
            si_text(macs),
            si_text(None if macs is None else macs / rounds),
        ),
    ]
    explained = (
        "AdaFL (Chen et al. 2021, section 3.2.2) counts every requested update as one relative unit, "
        "whatever its size: see 'updates requested'. The savings of pruning and compression show in "
        f"'received data in full models' of {run.summary.parameters:,} parameters with four bytes each. A "
        f"training step counts as {TRAINING_PASSES} forward passes of the device's own sub-model; where "
        "devices train smaller tiers in some of their steps, of the mean width."
    )
    return Section(
        "Costs", (table("Costs of the run", ("cost", "total", "per round"), rows), Paragraph(explained))
    )


def _total(run: RunContents, name: str) -> str:
    return bytes_text(sum(getattr(device, name) for device in run.summary.devices))


def training_macs(run: RunContents) -> float | None:
    """Multiply-accumulates of training on all devices; None where some are not known or layers are frozen."""
    if run.setting("training", "train", "all") != "all" or run.setting("tiers", "train"):
        return None
    each = _macs(run)
    worked = {name: work for name, work in run.trained.items() if work}
    if not worked or not all(name in each for name in worked):
        return None
    return float(sum(TRAINING_PASSES * work * each[name] for name, work in worked.items()))


def _macs(run: RunContents) -> Mapping[str, float]:
    """Multiply-accumulates per example and forward pass of a mean step by device, or those of its tier."""
    tiers = {tier.tier: tier.macs for tier in run.version.tiers} if run.version else {}
    found = {row.device: row.macs or tiers.get(row.tier) for row in run.summary.devices}
    known = {name: macs for name, macs in found.items() if macs is not None}
    own = own_probability(map(Component.model_validate, run.setting("strategy", "objectives", ())))
    if own is None:
        return known
    sizes = sorted({*known.values(), *(macs for macs in tiers.values() if macs is not None)})
    return {
        name: macs * step_share(own, macs, [size for size in sizes if size < macs])
        for name, macs in known.items()
    }


def _share(run: RunContents, updates: int) -> str:
    devices = len(run.summary.devices)
    return percent_text(updates / (devices * len(run.history))) if devices else UNKNOWN


def _row(name: str, total: str, mean: str) -> tuple[Cell, ...]:
    return (words(name), *numbers(total, mean))
