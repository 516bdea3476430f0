"""The options of a table as a data source: which columns are inputs and labels, and which rows are examples.

| option | meaning |
| --- | --- |
| `label` | columns to learn, with commas: text or whole numbers are classes, other numbers are numbers |
| `columns` | inputs; by default every column of numbers that no other option names |
| `ignore` | columns to leave out |
| `group` | rows of another value here belong to another series |
| `time` | a column of ascending times, which is not an input, or two of days and hours, with a comma |
| `time-format` | how times are written, as Python's strptime has it: `%d/%m/%Y %H:%M` |
| `gap` | a step in time (`30s`, `5min`, `2h`) over which no window reaches; by default three usual ones |
| `window`, `stride` | rows of one example [columns, window], and from one example to the next |
| `horizon` | learn the labels of this many rows after the window: a forecast |
| `change` | `yes` learns by how much labels change from the window's last row, which is easier |
| `missing` | refuse, drop, previous, or a number in place of a missing one |
| `kind` | `classes` or `numbers`: what labels that are whole numbers are, by default classes |
| `unlabelled` | `drop` leaves out examples whose label is missing; else `missing` says what happens |
| `id`, `labels` | labels are in this other CSV file, next to the id of their example |
| `sequence` | a column of consecutive numbers: a gap begins another series |
| `broken` | the largest share of broken rows, which are left out |
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data import class_folders, said_once
from edge_client.data.source_options import names_in, number_option, one_of, whole_option
from edge_client.data.tables import values
from edge_client.data.tables.table import ROW, Fill, Table, first_row, header_of
from schemas.errors import ConfigError

OPTIONS = (
    *("label", "columns", "ignore", "group", "time", "window", "stride", "horizon", "change", "missing"),
    *("unlabelled", "id", "labels", "sequence", "time-format", "gap", "kind", "broken"),
)


@dataclass(frozen=True)
class TableChoice:
    """What the options choose; `window` 0 means single rows.

    `named` inputs are stated; others may turn out to number the rows. `sparse` labels may be missing; `late`
    is the file of labels that has them by `ident`. `times` are one column, or one of days and one of hours.
    """

    source: str
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    group: str | None
    times: tuple[str, ...]
    window: int
    stride: int
    horizon: int
    change: bool
    fill: Fill
    named: bool = False
    sparse: bool = False
    ident: str | None = None
    late: Path | None = None
    sequence: str | None = None
    time_format: str | None = None
    gap: float | None = None
    kind: str | None = None
    broken: float = class_folders.MAX_BROKEN


def choose(table: Table, options: Mapping[str, str], source: str) -> TableChoice:
    """What the options choose of a table; `ConfigError` with the remedy for what it does not have."""
    names, labels = header_of(table), names_in(options, "label")
    late = _late(options, labels, source)
    horizon = whole_option(options, "horizon", 0, least=1, source=source)
    times = _times(options, names, source)
    # What is forecast may be known until now.
    inputs = _inputs(
        table, names, options, times, learned=() if horizon else labels, inside=() if late else labels
    )
    window = whole_option(options, "window", 0, least=1, source=source)
    if horizon and not (window and labels):
        raise ConfigError(
            f"horizon={horizon} forecasts labels after a window",
            place=source,
            remedy="state label and window",
        )
    stride = whole_option(options, "stride", 1, least=1, source=source)
    fill = Fill.parse(options.get("missing", "refuse"), source=source)
    change = one_of(options, "change", ("no", "yes"), source=source) == "yes"
    if change and not horizon:
        raise ConfigError("change=yes needs a horizon", place=source)
    unlabelled = one_of(options, "unlabelled", ("refuse", "drop"), source=source)
    return TableChoice(
        source,
        inputs,
        labels,
        options.get("group"),
        times,
        window,
        stride,
        horizon,
        change,
        fill,
        named="columns" in options,
        sparse=bool(labels) and (late is not None or unlabelled == "drop"),
        ident=options.get("id"),
        late=late,
        sequence=options.get("sequence"),
        time_format=options.get("time-format"),
        gap=values.parse_gap(options.get("gap"), source=source),
        kind=one_of(options, "kind", ("", "classes", "numbers"), source=source) or None,
        broken=number_option(options, "broken", class_folders.MAX_BROKEN, least=0, most=1, source=source),
    )


def _times(options: Mapping[str, str], names: Sequence[str], source: str) -> tuple[str, ...]:
    """The columns of the times; a comma may be in a name, too."""
    stated = options.get("time")
    if stated is None:
        alone = next((key for key in ("gap", "time-format") if key in options), None)
        if alone is not None:
            raise ConfigError(f"{alone}={options[alone]} needs time=COLUMN", place=source)
        return ()
    return (stated,) if stated in names else names_in(options, "time")


def _late(options: Mapping[str, str], labels: Sequence[str], source: str) -> Path | None:
    """The other file that has the labels, if any."""
    if "labels" not in options:
        return None
    late = Path(options["labels"]).expanduser()
    if "id" not in options or len(labels) != 1:
        raise ConfigError(
            f"labels={late} needs id=COLUMN, which both files have, and label=COLUMN, which that file has",
            place=source,
        )
    return late


def _inputs(
    table: Table,
    names: Sequence[str],
    options: Mapping[str, str],
    times: Sequence[str],
    *,
    learned: Sequence[str],
    inside: Sequence[str],
) -> tuple[str, ...]:
    """The inputs: those stated, else all of numbers but the `learned` ones and those of other options.

    The table has all columns that an option names, and the labels `inside` it; `ConfigError` otherwise.
    """
    ignored = names_in(options, "ignore")
    single = {key: options[key] for key in ("group", "id", "sequence") if key in options}
    others = {*learned, *ignored, *single.values(), *times}
    row_names = nameless(table, names) - others
    number, first = first_row(table)
    inputs = names_in(options, "columns")
    if not inputs:
        inputs = tuple(name for name in names if name not in others | row_names)
        say_numbering(table, row_names)
    stated = {"label": inside, "columns": inputs, "ignore": ignored, "time": times}
    stated |= {key: (name,) for key, name in single.items()}
    for key, columns in stated.items():
        for unknown in (name for name in columns if name not in names):
            raise values.missing_column(f"{table.path} has no column '{unknown}' for {key}=", unknown, names)
    counts = options.get("sequence")
    if counts in first and not values.is_number(first[counts]):
        raise ConfigError(
            f"column '{counts}' is not a number: sequence= names a column of consecutive whole numbers",
            place=table.place(number),
            quoted=repr(first[counts]),
        )
    unfit = next((name for name in inputs if name in first and not values.is_number(first[name])), None)
    if unfit is not None:
        raise ConfigError(
            f"column '{unfit}' is not a number",
            place=table.place(number),
            remedy=f"{values.remedy_of(first[unfit], unfit, has_decimal=table.has_decimal)}, or state the "
            "inputs with columns=...",
            quoted=repr(first[unfit]),
        )
    if not inputs:
        raise ConfigError(f"{table.path} has no column of numbers to learn from", remedy="state columns=...")
    return inputs


# Columns that number the rows of a table, as pandas, R and databases write them: no inputs unless named.
#
# A column is one by its name alone where a program gave it that name in place of none, and by name and
# content where it may be measured, too (`index` of ultraviolet light).

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


def nameless(table: Table, names: Collection[str]) -> frozenset[str]:
    """The columns that are no inputs unless they are named, whatever they hold."""
    return frozenset(name for name in names if NAMELESS.fullmatch(name)).union(table.index_columns)


def numbering(columns: Mapping[str, values.Numbers]) -> frozenset[str]:
    """Those of the columns that number the rows by name and content."""
    usual = {name: column for name, column in columns.items() if name.lower() in USUAL}
    return frozenset(name for name, column in usual.items() if _counts_rows(column))


def _counts_rows(column: values.Numbers) -> bool:
    """Whether whole numbers ascend by one from row to row, or each of them occurs once."""
    if (column != np.floor(column)).any() or (column < 0).any():
        return False
    ascending = np.count_nonzero(np.diff(column) == 1)
    return bool(2 * ascending > len(column) or len(np.unique(column)) == len(column))


def say_numbering(table: Table, left_out: Collection[str], kept: Collection[str] = ()) -> None:
    """Say once which columns are taken for row numbers, and which inputs only have such a name."""
    for name in sorted(left_out):
        said_once.say_once(
            f"{table.path}: column '{name}' numbers the rows, and is not an input unless columns= names it"
        )
    for name in sorted(kept):
        if name.lower() in USUAL:
            said_once.say_once(
                f"{table.path}: column '{name}' is an input: it does not number the rows, although it may be "
                f"called so; ignore={name} leaves it out"
            )
