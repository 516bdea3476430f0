"""All figures of the learning task after the last measured round, and one for each output."""

from collections.abc import Mapping, Sequence

from edge_client.data.tasks.registry import TASKS
from edge_client.data.tasks.words import METRICS
from edge_server.config.units import figure_text
from edge_server.observability.by_class import class_figures
from edge_server.observability.report.class_tables import (
    INTERVAL,
    RECALL,
    class_cells,
    device_class_tables,
)
from edge_server.observability.report.document import Cell, Paragraph, Section, Table, numbers, table, words
from edge_server.storage.records import RoundRecord


def figure_section(history: Sequence[RoundRecord], task: str) -> Section:
    """The section with a row per model, and a row per output."""
    last = next(
        (record for record in reversed(history) if record.test_metrics or record.client_metrics), None
    )
    if last is None:
        return Section("Figures", (Paragraph("Nothing was measured."),))
    measured = {
        "whole model, test data": last.test_metrics,
        **{f"tier {tier}, test data": found for tier, found in sorted(last.tier_metrics.items())},
        "devices, their own data": last.client_metrics,
        "devices' own models, their own data": last.own_metrics,
    }
    names = list(dict.fromkeys(name for found in measured.values() for name in found if name in METRICS))
    rows = [(words(label), *_cells(found, names)) for label, found in measured.items() if found]
    caption = f"Every figure after round {last.round}; the first one leads all other tables and charts"
    shown = [table(caption, ("model", *names), rows, rest="history.jsonl")]
    if last.test_by_output:
        shown.append(_by_output(last, task))
    return Section("Figures", (*shown, *device_class_tables(history)))


def _cells(found: Mapping[str, float], names: Sequence[str]) -> tuple[Cell, ...]:
    return numbers(*(figure_text(METRICS[name])(found.get(name)) for name in names))


def _by_output(record: RoundRecord, task: str) -> Table:
    by_output = TASKS[task].by_output
    name = "figure" if by_output is None else by_output[0]
    share = name not in METRICS or METRICS[name].share
    counted, columns = class_figures(record.test_by_class), list[str]()
    if counted:
        columns = ["examples", *([] if name == RECALL else [RECALL]), INTERVAL]
    rows = [
        (
            words(output),
            *numbers(f"{value:.2%}" if share else f"{value:.4g}"),
            *(class_cells(counted.get(output), columns)),
        )
        for output, value in record.test_by_output.items()
    ]
    caption = "The whole model on the server's test data, one figure for each output"
    return table(caption, ("output", name, *columns), rows, rest="history.jsonl")
