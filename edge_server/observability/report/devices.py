"""The tables of tiers and devices."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from edge_client.data.tasks.words import leading
from edge_server.config import units
from edge_server.observability.figures import leading_metric, served_figure
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import (
    Cell,
    Paragraph,
    Section,
    numbers,
    table,
    without_empty,
    words,
)
from edge_server.observability.terminal.tables import runtimes_differ, serves_text
from edge_server.storage.records import DeviceRecord

TIER_COLUMNS = (
    *("tier", "devices", "pruned", "parameters", "MACs", "ONNX file", "test", "on devices", "worst"),
    *("ms per image", "updates", "down", "up", "refused"),
)
DEVICE_COLUMNS = (
    *("device", "labels", "tier", "pruned", "parameters", "MACs", "ONNX file", "down", "up", "tested on"),
    *("rounds", "refused", "board"),
)
SERVED_COLUMNS = (
    *("device", "accuracy in torch", "accuracy in onnxruntime", "served model", "new on trial"),
    *("earlier on trial", "serves", "verdict", "largest difference", "ms per image"),
)


def tier_section(run: RunContents) -> Section:
    by_tier: dict[int, list[DeviceRecord]] = {}
    for device in run.devices:
        by_tier.setdefault(device.tier, []).append(device)
    if not by_tier:
        return Section("Tiers", (Paragraph(_nobody(run)),))
    metric = leading_metric(run.history)
    rows = [_tier_row(run, tier, by_tier[tier]) for tier in sorted(by_tier)]
    caption = (
        f"Each capability tier: its sub-model, its {metric.name} on the server's test data, the mean and the "
        f"worst {metric.name} on its devices' own held-out data, and the total bytes over its devices' links"
    )
    files = [
        (Cell(f"tier {tier}", words=True), words(path), words(_digest(run, tier)))
        for tier, path in sorted(run.summary.onnx.items())
    ]
    listed = (table("The tiers' ONNX files", ("tier", "file", "sha256"), files),) if files else ()
    return Section("Tiers", (without_empty(table(caption, TIER_COLUMNS, rows)), *listed))


def _nobody(run: RunContents) -> str:
    return f"No device matches {run.where}." if run.summary.devices else "No device took part."


def _digest(run: RunContents, tier: int) -> str:
    described = run.version.tier(tier) if run.version else None
    return described.sha256 if described else units.UNKNOWN


def _tier_row(run: RunContents, tier: int, devices: Sequence[DeviceRecord]) -> tuple[Cell, ...]:
    metric = leading_metric(run.history)
    measured = [value for row in devices if (value := served_figure(row, metric)) is not None]
    worst = (min if metric.higher_is_better else max)(measured, default=None)
    text = units.figure_text(metric)
    latencies = [row.latency_ms for row in devices if row.latency_ms is not None]
    sized = next((row for row in devices if row.parameters is not None), devices[0])
    last = run.history[-1] if run.history else None
    refused = sum(row.refusals for row in devices)
    return (
        Cell(str(tier)),
        *numbers(
            units.count_text(len(devices)),
            units.ratio_text(sized.ratio),
            units.count_text(sized.parameters),
            units.si_text(sized.macs),
            units.bytes_text(sized.onnx_bytes),
            text(last.tier_metrics.get(tier, {}).get(metric.name) if last else None),
            text(fmean(measured) if measured else None),
            text(worst),
            units.number_text(fmean(latencies) if latencies else None),
            units.count_text(sum(row.rounds for row in devices)),
            units.bytes_text(sum(row.downlink_bytes for row in devices)),
            units.bytes_text(sum(row.uplink_bytes for row in devices)),
        ),
        Cell(units.count_text(refused), alert=refused > 0),
    )


def device_section(run: RunContents) -> Section:
    """The section with two rows per device, those with most refusals first: its work, and what it serves."""
    devices = run.devices
    if not devices:
        return Section("Devices", (Paragraph(_nobody(run)),))
    ordered = sorted(devices, key=lambda row: -row.refusals)
    caption = (
        "Each device's compact model, the held-out examples that it was tested on, and the bytes over its "
        "link (broadcasts included)"
    )
    worked = table(caption, DEVICE_COLUMNS, [_device_row(device, run.boards) for device in ordered])
    caption = "What each device serves: accuracy on held-out data in both runtimes, the trial of a new model"
    served = without_empty(table(caption, SERVED_COLUMNS, [_served_row(device) for device in ordered]))
    return Section("Devices", (without_empty(worked), *([served] if len(served.columns) > 1 else [])))


def _trial_cells(device: DeviceRecord) -> tuple[Cell, ...]:
    """The result of a device's trial, if it used another model before."""
    verdict = device.verdict
    if verdict is None or not verdict.earlier:
        return (*numbers("", ""), words(""), words(""))
    accuracies = numbers(units.percent_text(verdict.accuracy), units.percent_text(verdict.earlier_accuracy))
    serves = Cell(serves_text(device), words=True, alert=not verdict.served)
    return (*accuracies, serves, words(verdict.why))


def _served_text(device: DeviceRecord) -> str:
    """The leading figure of the served file where it is no accuracy, which has columns of its own."""
    found = leading(device.metrics)
    if found is None or device.onnx_accuracy is not None:
        return units.UNKNOWN
    return f"{found[0].name} {units.figure_text(found[0])(found[1])}"


def _device_row(device: DeviceRecord, boards: Mapping[str, str]) -> list[Cell]:
    return [
        words(device.device),
        words(", ".join(f"{key}={value}" for key, value in sorted(device.labels.items()))),
        *numbers(
            str(device.tier),
            units.ratio_text(device.ratio),
            units.count_text(device.parameters),
            units.si_text(device.macs),
            units.bytes_text(device.onnx_bytes),
            units.bytes_text(device.downlink_bytes),
            units.bytes_text(device.uplink_bytes),
            units.count_text(device.examples),
            units.count_text(device.rounds),
        ),
        Cell(units.count_text(device.refusals), alert=device.refusals > 0),
        words(boards.get(device.device, "")),
    ]


def _served_row(device: DeviceRecord) -> list[Cell]:
    differs = runtimes_differ(device)
    onnx = units.percent_text(device.onnx_accuracy) + (" differs" if differs else "")
    difference = units.UNKNOWN if device.max_difference is None else f"{device.max_difference:.2g}"
    return [
        words(device.device),
        Cell(units.percent_text(device.torch_accuracy)),
        Cell(onnx, alert=differs),
        Cell(_served_text(device)),
        *_trial_cells(device),
        *numbers(difference, units.number_text(device.latency_ms)),
    ]
