"""Tables of what devices measured by class in a round without training."""

from collections.abc import Mapping, Sequence

from edge_server.config.units import UNKNOWN, count_text, percent_text
from edge_server.observability.by_class import (
    ALL_DEVICES,
    TEST_DATA,
    ClassFigure,
    Counts,
    class_figures,
    newest_counts,
)
from edge_server.observability.report.document import Cell, Table, numbers, table, words
from edge_server.storage.records import RoundRecord

RECALL, INTERVAL = "recall", "95 % interval of recall"
COLUMNS = ("examples", RECALL, INTERVAL)
MOST_COLUMNS = 20
"""With more classes there is no column for each."""


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
    return (pooled, _per_device(devices, list(whole))) if len(whole) <= MOST_COLUMNS else (pooled,)


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
