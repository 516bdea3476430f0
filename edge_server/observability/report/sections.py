"""The sections of a run's report, in reading order."""

import re
from collections import Counter
from collections.abc import Sequence

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_server.config import units
from edge_server.observability import data_statistics, figures
from edge_server.observability.kept_features import KEPT_COLUMNS, describe_kept, kept_features
from edge_server.observability.report import contents, costs, figure_tables, origin
from edge_server.observability.report.devices import device_section, tier_section
from edge_server.observability.report.document import (
    Block,
    Card,
    Cell,
    Curves,
    Paragraph,
    Section,
    Table,
    numbers,
    table,
    words,
)
from edge_server.releases.registry.card import model_card_body
from edge_server.storage.records import DeviceRecord, RoundRecord, UndoneRecord
from edge_server.storage.run_folder import PASS


def run_sections(run: contents.RunContents) -> tuple[Section, ...]:
    return (
        *warning_sections(run.history, run.summary.devices),
        Section("Curves", (Curves(figure_tables.run_charts(run.history)),)),
        figure_tables.figure_section(run.history, run.setting("model", "task", CLASSIFICATION.name)),
        *statistics_sections(run),
        tier_section(run),
        device_section(run),
        *personal_sections(run),
        *feature_sections(run),
        round_section(run.history, run.summary.undone),
        costs.cost_section(run),
        origin.privacy_section(run),
        refusal_section(run),
        card_section(run),
        origin.origin_section(run),
        origin.repeat_section(run),
        origin.file_section(run),
    )


def warning_sections(
    history: Sequence[RoundRecord], devices: Sequence[DeviceRecord] = ()
) -> tuple[Section, ...]:
    """The section with a paragraph per warning; none without any."""
    found = tuple(map(Paragraph, figures.warning_texts(history, devices)))
    return (Section("Warnings", found),) if found else ()


def round_section(history: Sequence[RoundRecord], undone: Sequence[UndoneRecord] = ()) -> Section:
    if not history:
        return Section("Rounds", (Paragraph("No round was closed."),))
    tiers = sorted({tier for record in history for tier in record.tier_metrics})
    metric = figures.leading_metric(history)
    tier_columns = [f"tier {tier}" for tier in tiers]
    where = figures.where_measured(history)
    measured = ["round", "devices", f"{where} {metric.name}", *tier_columns, "training loss", "test loss"]
    columns = [*measured, "down", "up", "time", "dropped", "refused"]
    rows = [_round_row(record, tiers, metric, where) for record in reversed(history)]
    caption = (
        f"Each closed round, the last one first: counted and selected devices, {metric.name} and loss of the "
        f"global model, {metric.name} of each tier's sub-model, bytes that the server sent and received, and "
        "devices whose work did not count"
    )
    notes = tuple(Paragraph(_undone_text(record)) for record in undone)
    return Section("Rounds", (*notes, table(caption, columns, rows, rest="history.jsonl")))


def _undone_text(undone: UndoneRecord) -> str:
    without = f"without {units.names_text(undone.left_out)}" if undone.left_out else "with all devices"
    return (
        f"The model of round {undone.round} was discarded because no device could train it or its outputs "
        f"were not finite: the run continued from the model after round {undone.back_to}, {without} for some "
        "rounds."
    )


def _round_row(record: RoundRecord, tiers: Sequence[int], metric: Metric, where: str) -> list[Cell]:
    text = units.figure_text(metric)
    refused = units.names_text([f"{rejected.device} ({rejected.reason})" for rejected in record.rejected])
    return [
        Cell(str(record.round)),
        *numbers(
            f"{len(record.completed)} of {len(record.selected)}",
            text(figures.figures_there(record, where).get(metric.name)),
            *(text(record.tier_metrics.get(tier, {}).get(metric.name)) for tier in tiers),
            units.loss_text(record.train_loss),
            units.loss_text(record.test_loss),
            units.bytes_text(record.downlink_bytes),
            units.bytes_text(record.uplink_bytes),
            units.duration_text(record.duration_s),
        ),
        words(units.names_text(record.dropped)),
        Cell(refused, words=True, alert=bool(record.rejected)),
    ]


NO_MODEL_CARD = "This run exported no model, so there is no card."


def card_section(run: contents.RunContents) -> Section:
    """The registry's card without its title; links lead into the run folder."""
    if run.version is None:
        return Section("Model card", (Paragraph(NO_MODEL_CARD),))
    text = model_card_body(run.version, run.described, files="onnx/")
    return Section("Model card", (Card(re.sub(r"\A# .*\n+", "", text)),))


PERSONAL_COLUMNS = ("device", "figure", "as received", "trained", "epochs", "exported", "why")


def personal_sections(run: contents.RunContents) -> tuple[Section, ...]:
    """The section with a row per device; none if no device was asked."""
    trained = figures.personalised_devices(run.summary.devices)
    rows = [
        (
            words(device.device),
            words(found.metric),
            *numbers(*figures.before_and_after(found), str(found.epochs)),
            Cell(figures.keeps_text(found), words=True, alert=found.before is None),
            words(found.why or units.UNKNOWN),
        )
        for device, found in trained
    ]
    caption = f"{figures.personal_line(run.summary.devices)}. Figures are of each device's own held-out data"
    return (Section("Personal models", (table(caption, PERSONAL_COLUMNS, rows),)),) if rows else ()


def feature_sections(run: contents.RunContents) -> tuple[Section, ...]:
    """The section with a row per device that kept features; none if all layers ran in every step."""
    devices = kept_features(run.history)
    texts = [device.as_row() for device in devices]
    rows = [(words(name), *numbers(*figures), words(rounds)) for name, *figures, rounds in texts]
    caption = f"In all rounds: {describe_kept(devices)}"
    return (Section("Features", (table(caption, KEPT_COLUMNS, rows, rest="history.jsonl"),)),) if rows else ()


def statistics_sections(run: contents.RunContents) -> tuple[Section, ...]:
    """The section with a row per feature and a row per class; none if nobody was asked."""
    found = data_statistics.newest_statistics(run.history) or data_statistics.last_statistics(
        run.folder / PASS
    )
    if found is None:
        return ()
    texts = data_statistics.as_texts(found)
    tables = [_statistics_table(texts.about, data_statistics.FEATURE_COLUMNS, texts.features)]
    if texts.labels:
        tables.append(
            _statistics_table("Examples of each class", data_statistics.LABEL_COLUMNS, texts.labels)
        )
    return (Section("Data of the devices", tuple(tables)),)


def _statistics_table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    cells = [(words(name), *numbers(*figures)) for name, *figures in rows]
    return table(caption, columns, cells, rest="history.jsonl")


NO_REFUSALS = "No message of a device was refused."


def refusal_section(run: contents.RunContents) -> Section:
    devices = [row for row in run.summary.devices if row.refusals or row.quarantined_until is not None]
    refused = [row for record in run.history for row in record.rejected]
    in_rounds = Counter(row.reason for row in refused)
    messages: Counter[str] = Counter()
    for device in run.summary.devices:
        messages.update(device.refused)
    reasons = sorted(
        {*in_rounds, *messages}, key=lambda reason: (-messages[reason], -in_rounds[reason], reason)
    )
    if not reasons and not devices:
        return Section("Refused by the firewall", (Paragraph(NO_REFUSALS),))
    rows = [
        (
            words(reason),
            *numbers(units.count_text(messages[reason]), units.count_text(in_rounds[reason])),
            words(_refused_devices(run, reason)),
            words(next((row.detail for row in reversed(refused) if row.reason == reason and row.detail), "")),
        )
        for reason in reasons
    ]
    columns = ("reason", "messages", "updates in rounds", "devices", "last detail")
    blocks: list[Block] = [table("Refusals by reason", columns, rows)] if rows else []
    if devices:
        ordered = sorted(devices, key=lambda row: -row.refusals)
        heads = ("device", "tier", "refused", "reasons", "quarantined until round")
        blocks.append(table("Refusals by device", heads, [_device_cells(row) for row in ordered]))
    return Section("Refused by the firewall", tuple(blocks))


def _refused_devices(run: contents.RunContents, reason: str) -> str:
    named = {row.device for record in run.history for row in record.rejected if row.reason == reason}
    named |= {row.device for row in run.summary.devices if row.refused.get(reason)}
    return units.names_text(sorted(named))


def _device_cells(device: DeviceRecord) -> tuple[Cell, ...]:
    reasons = ", ".join(f"{reason} {count}" for reason, count in device.refused.items())
    until = units.UNKNOWN if device.quarantined_until is None else str(device.quarantined_until)
    return (
        words(device.device),
        *numbers(str(device.tier), units.count_text(device.refusals)),
        words(reasons),
        Cell(until, alert=device.quarantined_until is not None),
    )
