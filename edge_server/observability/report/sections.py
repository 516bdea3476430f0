"""The sections of a run's report, in reading order."""

import re
from collections.abc import Sequence

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_server.config.units import (
    bytes_text,
    duration_text,
    figure_text,
    loss_text,
    names_text,
)
from edge_server.observability.figures import figures_there, leading_metric, warning_texts, where_measured
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.costs import cost_section
from edge_server.observability.report.curves import run_charts
from edge_server.observability.report.data_statistics import statistics_sections
from edge_server.observability.report.devices import device_section, tier_section
from edge_server.observability.report.document import (
    Card,
    Cell,
    Curves,
    Paragraph,
    Section,
    numbers,
    table,
    words,
)
from edge_server.observability.report.figure_tables import figure_section
from edge_server.observability.report.origin import file_section, origin_section, repeat_section
from edge_server.observability.report.personal import personal_sections
from edge_server.observability.report.privacy import privacy_section
from edge_server.observability.report.refusals import refusal_section
from edge_server.releases.registry.card import model_card_body
from edge_server.storage.records import RoundRecord, UndoneRecord


def run_sections(run: RunContents) -> tuple[Section, ...]:
    return (
        *warning_sections(run.history),
        Section("Curves", (Curves(run_charts(run.history)),)),
        figure_section(run.history, run.setting("model", "task", CLASSIFICATION.name)),
        *statistics_sections(run),
        tier_section(run),
        device_section(run),
        *personal_sections(run),
        round_section(run.history, run.summary.undone),
        cost_section(run),
        privacy_section(run),
        refusal_section(run),
        card_section(run),
        origin_section(run),
        repeat_section(run),
        file_section(run),
    )


def warning_sections(history: Sequence[RoundRecord]) -> tuple[Section, ...]:
    """The section with a paragraph per warning; none without any."""
    found = tuple(map(Paragraph, warning_texts(history)))
    return (Section("Warnings", found),) if found else ()


def round_section(history: Sequence[RoundRecord], undone: Sequence[UndoneRecord] = ()) -> Section:
    """The section with a row per round, the last one first, and a paragraph per undone round."""
    if not history:
        return Section("Rounds", (Paragraph("No round was closed."),))
    tiers = sorted({tier for record in history for tier in record.tier_metrics})
    metric = leading_metric(history)
    tier_columns = [f"tier {tier}" for tier in tiers]
    where = where_measured(history)
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
    without = f"without {names_text(undone.left_out)}" if undone.left_out else "with all devices"
    return (
        f"The model of round {undone.round} was discarded because no device could train it or its outputs "
        f"were not finite: the run continued from the model after round {undone.back_to}, {without} for some "
        "rounds."
    )


def _round_row(record: RoundRecord, tiers: Sequence[int], metric: Metric, where: str) -> list[Cell]:
    text = figure_text(metric)
    refused = names_text([f"{rejected.device} ({rejected.reason})" for rejected in record.rejected])
    return [
        Cell(str(record.round)),
        *numbers(
            f"{len(record.completed)} of {len(record.selected)}",
            text(figures_there(record, where).get(metric.name)),
            *(text(record.tier_metrics.get(tier, {}).get(metric.name)) for tier in tiers),
            loss_text(record.train_loss),
            loss_text(record.test_loss),
            bytes_text(record.downlink_bytes),
            bytes_text(record.uplink_bytes),
            duration_text(record.duration_s),
        ),
        words(names_text(record.dropped)),
        Cell(refused, words=True, alert=bool(record.rejected)),
    ]


NO_MODEL_CARD = "This run exported no model, so there is no card."


def card_section(run: RunContents) -> Section:
    """The registry's card without its title; links lead into the run folder."""
    if run.version is None:
        return Section("Model card", (Paragraph(NO_MODEL_CARD),))
    text = model_card_body(run.version, run.described, files="onnx/")
    return Section("Model card", (Card(re.sub(r"\A# .*\n+", "", text)),))
