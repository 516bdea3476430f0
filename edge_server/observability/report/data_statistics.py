"""What the devices have answered about their data: in this run, or in the pass before its first round."""

from edge_server.config.units import count_text, percent_text
from edge_server.observability.data_statistics import (
    ERROR,
    FEATURE_COLUMNS,
    feature_cells,
    last_statistics,
    statistics_rows,
)
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Section, Table, numbers, table, words
from edge_server.storage.data_statistics import DataStatistics
from edge_server.storage.run_folder import PASS


def statistics_sections(run: RunContents) -> tuple[Section, ...]:
    """The section with a row per feature and a row per class; none if nobody was asked."""
    own = (record.statistics for record in reversed(run.history))
    found = next((statistics for statistics in own if statistics is not None), None)
    found = found or last_statistics(run.folder / PASS)
    if found is None:
        return ()
    tables = [_features(found), _labels(found)] if found.labels else [_features(found)]
    return (Section("Data of the devices", tuple(tables)),)


def _features(found: DataStatistics) -> Table:
    rows = [(words(row.name), *numbers(*feature_cells(row))) for row in statistics_rows(found)]
    caption = (
        f"{count_text(round(found.examples))} examples of {count_text(found.devices)} devices, in the units "
        f"of their data; {ERROR}"
    )
    return table(caption, ("feature", *FEATURE_COLUMNS), rows, rest="history.jsonl")


def _labels(found: DataStatistics) -> Table:
    rows = [
        (words(name), *numbers(count_text(round(count)), percent_text(count / found.examples)))
        for name, count in found.labels.items()
    ]
    return table("Examples of each class", ("class", "examples", "share"), rows, rest="history.jsonl")
