"""The final tables of a run: devices, rounds, and trials of the delivered model."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from edge_client.data.tasks.words import leading
from edge_server.config import units
from edge_server.observability import figures
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary
from schemas.errors import format_count

LAST_ROUNDS = 20  # Rounds in the final table; earlier rounds are in `history.jsonl` and in the report
LINK_BYTES = "down, up: bytes over the device's own link, with broadcasts; in rounds, bytes of the server"


def plain_table(title: str = "", *, dense: bool = False) -> Table:
    """An empty table in the common style: a rule below the heads, no other lines."""
    return Table(
        title=Text(title, style="bold") if title else None,
        title_justify="left",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0 if dense else (0, 1),
        collapse_padding=True,
        header_style="dim",
    )


def add_numbers(table: Table, *names: str) -> None:
    """Add number columns, right-aligned and never wrapped."""
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)


def device_table(summary: Summary, *, dense: bool = False) -> Table:
    """One row per device: its compact model, its bytes, and its accuracy in both runtimes.

    Where no device has a model of its own, as in a simulation, its updates and refusals instead.
    """
    if all(device.parameters is None for device in summary.devices):
        return _part_table(summary, dense=dense)
    table = plain_table("Devices", dense=dense)
    table.caption = Text(LINK_BYTES)
    table.add_column("device", overflow="fold")
    add_numbers(table, "tier", "params" if dense else "parameters", "MACs", "down", "up", "torch", "onnx")
    differs = any(runtimes_differ(device) for device in summary.devices)
    if differs:
        table.add_column("", no_wrap=True)
    add_numbers(table, "ms/img" if dense else "ms/image")
    for device in summary.devices:
        mark = [Text("differs" if runtimes_differ(device) else "", style="red")] if differs else []
        table.add_row(*_device_cells(device), *mark, units.number_text(device.latency_ms))
    return table


def _part_table(summary: Summary, *, dense: bool) -> Table:
    table = plain_table("Devices", dense=dense)
    table.caption = Text(LINK_BYTES)
    table.add_column("device", overflow="fold")
    add_numbers(table, "tier", "pruned", "updates", "refused", "down", "up")
    for device in summary.devices:
        table.add_row(
            Text(units.clean(device.device)),
            str(device.tier),
            units.ratio_text(device.ratio),
            str(device.rounds),
            str(device.refusals),
            units.bytes_text(device.downlink_bytes),
            units.bytes_text(device.uplink_bytes),
        )
    return table


def _device_cells(device: DeviceRecord) -> tuple[Text | str, ...]:
    return (
        Text(units.clean(device.device)),
        str(device.tier),
        units.count_text(device.parameters),
        units.si_text(device.macs),
        units.bytes_text(device.downlink_bytes),
        units.bytes_text(device.uplink_bytes),
        units.percent_text(device.torch_accuracy),
        _served_text(device),
    )


def _served_text(device: DeviceRecord) -> str:
    """The accuracy of the export, or the leading figure of the file in use."""
    found = leading(device.metrics)
    if device.onnx_accuracy is not None or found is None:
        return units.percent_text(device.onnx_accuracy)
    return f"{found[0].name} {units.figure_text(found[0])(found[1])}"


def runtimes_differ(device: DeviceRecord) -> bool:
    """Whether the accuracies in torch and in onnxruntime were both measured and differ."""
    measured = (device.torch_accuracy, device.onnx_accuracy)
    return None not in measured and measured[0] != measured[1]


def round_table(history: Sequence[RoundRecord], *, dense: bool = False) -> Table:
    """One row for each of the last `LAST_ROUNDS` rounds, and below them the dropped and refused devices."""
    table = plain_table("Rounds", dense=dense)
    time = "virtual time" if any(record.virtual_time_s is not None for record in history) else "time"
    metric, where = figures.leading_metric(history), figures.where_measured(history)
    text = units.figure_text(metric)
    measured = where if metric is figures.ACCURACY else f"{where} {metric.name}"
    # A round of statistics neither trains nor measures a model.
    asked = any(record.statistics is not None for record in history)
    add_numbers(table, "round", "devices", *([] if asked else [measured, "tiers", "train loss"]))
    add_numbers(table, "down", "up", time)
    for record in history[-LAST_ROUNDS:]:
        figure = text(figures.figures_there(record, where).get(metric.name))
        tiers, loss = figures.range_text(metric, record.tier_metrics), units.loss_text(record.train_loss)
        table.add_row(
            str(record.round),
            f"{len(record.completed)}/{len(record.selected)}",
            *([] if asked else [figure, tiers, loss]),
            units.bytes_text(record.downlink_bytes),
            units.bytes_text(record.uplink_bytes),
            units.duration_text(record.duration_s),
        )
    table.caption = Text("\n".join(_remarks(history)))
    return table


def _remarks(history: Sequence[RoundRecord]) -> list[str]:
    earlier = len(history) - LAST_ROUNDS
    remarks = [f"{earlier} earlier rounds are in history.jsonl"] if earlier > 0 else []
    troubles = [(record.round, trouble_text(record)) for record in history[-LAST_ROUNDS:]]
    return remarks + [f"round {number}: {trouble}" for number, trouble in troubles if trouble]


def trouble_text(record: RoundRecord) -> str:
    """The dropped devices, and the refused ones with reasons; empty if there are none."""
    parts = []
    if record.dropped:
        parts.append(f"dropped {units.names_text(record.dropped)}")
    if record.rejected:
        refusals = [f"{rejected.device} ({rejected.reason})" for rejected in record.rejected]
        parts.append(f"refused {units.names_text(refusals)}")
    return "; ".join(parts)


def late_text(record: RoundRecord) -> str:
    """The updates begun in an earlier round: `2 late by up to 3 rounds`; empty if there are none."""
    if not record.staleness:
        return ""
    most = max(record.staleness.values())
    return f"{len(record.staleness)} late by up to {format_count(most, 'round')}"


def epsilon_text(figures: RoundRecord | Summary) -> str:
    """The privacy spent so far: `epsilon 3.2 at delta 1e-05`; empty without differential privacy."""
    if figures.epsilon is None or figures.delta is None:
        return ""
    return f"epsilon {figures.epsilon:.3g} at delta {figures.delta:g}"


def outcome_text(summary: Summary) -> str:
    detail = f" ({units.clean(summary.detail)})" if summary.detail else ""
    (last, best), own, spent = (
        figures.measured_figures(summary),
        figures.own_figure(summary),
        epsilon_text(summary),
    )
    measured = f"{figures.measured_name(summary)} {last}{f' (best {best})' if best else ''}, "
    measured += f"{naive}, " if (naive := figures.naive_figures(summary)) else ""
    return (
        f"{units.clean(summary.outcome)}{detail}: {units.counted_text(summary.rounds, 'round')} "
        f"in {units.duration_text(summary.duration_s)}, "
        f"{'' if units.UNKNOWN == last == best else measured}{f'{own}, ' if own else ''}"
        f"the server sent {units.bytes_text(summary.downlink_bytes)} "
        f"and received {units.bytes_text(summary.uplink_bytes)}" + (f", {spent}" if spent else "")
    )


def on_trial(devices: Sequence[DeviceRecord]) -> list[DeviceRecord]:
    """The devices that served another model before this one."""
    return [row for row in devices if row.verdict is not None and row.verdict.earlier]


def serves_text(device: DeviceRecord) -> str:
    """Which model the device serves: `new` or `earlier`; a dash if it received none."""
    return {True: "new", False: "earlier", None: units.UNKNOWN}[device.serves_new]


def trial_table(devices: Sequence[DeviceRecord], *, dense: bool = False) -> Table:
    """One row per device with an earlier model: both accuracies on the same examples, and the verdict."""
    table = plain_table("Trials of the new model", dense=dense)
    table.add_column("device", overflow="fold")
    table.add_column("serves", no_wrap=True)
    add_numbers(table, "new", "earlier", "examples")
    table.add_column("why", overflow="fold")
    for device in on_trial(devices):
        verdict = device.verdict
        assert verdict is not None
        table.add_row(
            Text(units.clean(device.device)),
            Text(serves_text(device), style="" if verdict.served else "yellow"),
            units.percent_text(verdict.accuracy),
            units.percent_text(verdict.earlier_accuracy),
            units.count_text(verdict.examples or None),
            Text(units.clean(verdict.why)),
        )
    return table


def trial_line(devices: Sequence[DeviceRecord]) -> str:
    """Trials of a large fleet: `12 of 40 devices on trial keep their earlier model`; empty without any."""
    tried = on_trial(devices)
    if not tried:
        return ""
    kept = sum(row.serves_new is False for row in tried)
    of_all = f"{units.count_text(kept)} of {units.counted_text(len(tried), 'device')}"
    return f"{of_all} on trial keep their earlier model"
