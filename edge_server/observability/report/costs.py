"""The cost of a run: bytes, updates as AdaFL counts them, time, multiply-accumulates."""

from collections.abc import Mapping
from statistics import fmean

from edge_server.config.units import UNKNOWN, bytes_text, count_text, duration_text, percent_text, si_text
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Cell, Paragraph, Section, numbers, table, words
from edge_server.observability.report.measures import measure
from edge_server.strategy.groups.widths import own_probability, step_share
from schemas.strategy import Component
from schemas.values import TRAINING_PASSES


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
    """Multiply-accumulates of training on all devices; None where a device's are not known."""
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
