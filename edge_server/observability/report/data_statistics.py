"""What the devices have answered about their data: in this run, or in the pass before its first round."""

from collections.abc import Sequence

from edge_server.observability.data_statistics import (
    FEATURE_COLUMNS,
    LABEL_COLUMNS,
    as_texts,
    last_statistics,
    newest_statistics,
)
from edge_server.observability.report.contents import RunContents
from edge_server.observability.report.document import Section, Table, numbers, table, words
from edge_server.storage.run_folder import PASS


def statistics_sections(run: RunContents) -> tuple[Section, ...]:
    """The section with a row per feature and a row per class; none if nobody was asked."""
    found = newest_statistics(run.history) or last_statistics(run.folder / PASS)
    if found is None:
        return ()
    texts = as_texts(found)
    tables = [_table(texts.about, FEATURE_COLUMNS, texts.features)]
    if texts.labels:
        tables.append(_table("Examples of each class", LABEL_COLUMNS, texts.labels))
    return (Section("Data of the devices", tuple(tables)),)


def _table(caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    cells = [(words(name), *numbers(*figures)) for name, *figures in rows]
    return table(caption, columns, cells, rest="history.jsonl")
