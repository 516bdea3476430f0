"""All figures of the learning task after the last measured round, and one for each output."""

from collections.abc import Mapping, Sequence

from edge_client.data.tasks.registry import TASKS
from edge_client.data.tasks.words import METRICS
from edge_server.config.units import UNKNOWN, count_text, figure_text, percent_text
from edge_server.observability.by_class import (
    ALL_DEVICES,
    TEST_DATA,
    ClassFigure,
    Counts,
    class_figures,
    newest_counts,
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


RECALL, INTERVAL = "recall", "95 % interval of recall"
COLUMNS = ("examples", RECALL, INTERVAL)
MAX_COLUMNS = 20  # With more classes there is no column for each


def class_cells(figure: ClassFigure | None, columns: Sequence[str]) -> tuple[Cell, ...]:
    """A class's cells in these columns, some of `COLUMNS`; a class without examples has no share."""
    texts = dict.fromkeys(COLUMNS, UNKNOWN)
    if figure is not None:
        texts["examples"], texts[RECALL] = count_text(figure.examples), percent_text(figure.recall)
        if figure.interval is not None:
            texts[INTERVAL] = " - ".join(map(percent_text, figure.interval))
    return numbers(*(texts[column] for column in columns))


def device_class_tables(history: Sequence[RoundRecord]) -> tuple[Table, ...]:
    """A row per class over all devices, and a row per device; none if no device counted its classes."""
    _, counted = newest_counts(history)
    if ALL_DEVICES not in counted:
        return ()
    whole = class_figures(counted[ALL_DEVICES])
    rows = [(words(name), *class_cells(figure, COLUMNS)) for name, figure in whole.items()]
    caption = "All devices on data that they hold out, by class: the share of its examples that is recognised"
    pooled = table(caption, ("class", *COLUMNS), rows, rest="history.jsonl")
    devices = {name: counts for name, counts in counted.items() if name not in (TEST_DATA, ALL_DEVICES)}
    return (pooled, _per_device(devices, list(whole))) if len(whole) <= MAX_COLUMNS else (pooled,)


def _per_device(devices: Mapping[str, Counts], names: Sequence[str]) -> Table:
    figures = {device: class_figures(counts) for device, counts in devices.items()}
    rows = [
        (words(device), *numbers(*(_share_of(found.get(name)) for name in names)))
        for device, found in figures.items()
    ]
    caption = "Each device on data that it holds out: the share of each class's examples that is recognised"
    return table(caption, ("device", *names), rows, rest="history.jsonl")


def _share_of(figure: ClassFigure | None) -> str:
    """`50% of 6`."""
    if figure is None or figure.recall is None:
        return UNKNOWN
    return f"{figure.recall:.0%} of {count_text(figure.examples)}"
