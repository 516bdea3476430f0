"""Columns that number the rows of a table, as pandas, R and databases write them: no inputs unless named.

A column is one by its name alone where a program gave it that name in place of none, and by name and content
where it may be measured, too (`index` of ultraviolet light).
"""

import re
from collections.abc import Collection, Mapping

import numpy as np

from edge_client.data.said_once import say_once
from edge_client.data.tables.table import ROW, Table
from edge_client.data.tables.values import Numbers

NAMELESS = re.compile(
    r"Unnamed: \d+(_level_\d+)?(\.\d+)*|__index_level_\d+__|\(column \d+\)|" + re.escape(ROW)
)
"""What pandas calls columns without a name, and `header_of` does."""
USUAL = frozenset(
    (
        *("index", "level_0", "rownames", "rowname", "row_names", "row.names", "rowid", "row_id", "row"),
        *("row_number", "id", "_id", "no", "no.", "nr", "nr.", "#", "obs", "record", "entry_id"),
    )
)
"""Usual names of row numbers, in small letters."""


def index_columns(table: Table) -> frozenset[str]:
    """The columns that the file itself calls its rows' labels."""
    return frozenset(table.index_columns)


def nameless(table: Table, names: Collection[str]) -> frozenset[str]:
    """The columns that are no inputs unless they are named, whatever they hold."""
    return frozenset(name for name in names if NAMELESS.fullmatch(name)) | index_columns(table)


def numbering(columns: Mapping[str, Numbers]) -> frozenset[str]:
    """Those of the columns that number the rows by name and content."""
    return frozenset(
        name for name, column in columns.items() if name.lower() in USUAL and counts_rows(column)
    )


def counts_rows(column: Numbers) -> bool:
    """Whether whole numbers ascend by one from row to row, or each of them occurs once."""
    if (column != np.floor(column)).any() or (column < 0).any():
        return False
    ascending = np.count_nonzero(np.diff(column) == 1)
    return bool(2 * ascending > len(column) or len(np.unique(column)) == len(column))


def say_numbering(table: Table, left_out: Collection[str], kept: Collection[str] = ()) -> None:
    """Say once which columns are taken for row numbers, and which inputs only have such a name."""
    for name in sorted(left_out):
        say_once(f"{table.path}: column '{name}' numbers the rows, and is no input unless columns= names it")
    for name in sorted(kept):
        if name.lower() in USUAL:
            say_once(
                f"{table.path}: column '{name}' is an input: it does not number the rows, although it may be "
                f"called so; ignore={name} leaves it out"
            )
