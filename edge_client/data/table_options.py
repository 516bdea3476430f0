"""The options of a table as a data source: which columns are inputs and labels, and which rows are examples.

| option | meaning |
| --- | --- |
| `label` | columns to learn, with commas: text or whole numbers are classes, other numbers are numbers |
| `columns` | inputs; by default every column of numbers that no other option names |
| `ignore` | columns to leave out |
| `group` | rows of another value here belong to another series |
| `time` | a column in ascending order, which is no input |
| `window`, `stride` | rows of one example [columns, window], and from one example to the next |
| `horizon` | learn the labels of this many rows after the window: a forecast |
| `change` | `yes` learns by how much labels change from the window's last row, which is easier |
| `missing` | refuse, drop, previous, or a number in place of a missing one |
| `unlabelled` | `drop` leaves out examples whose label is missing; else `missing` says what happens |
| `id`, `labels` | labels are in this other CSV file, beside the id of their example |
| `sequence` | a column of consecutive numbers: a gap begins another series |
| `table` | the table of an SQLite file, if it has several |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edge_client.data.source_options import names_in, whole_number
from edge_client.data.tables import ROW, Fill, Table, first_row, header_of, is_number
from schemas.errors import ConfigError, nearest

OPTIONS = (
    *("label", "columns", "ignore", "group", "time", "window", "stride", "horizon", "change", "missing"),
    *("unlabelled", "id", "labels", "sequence"),
)
SQLITE_OPTIONS = (*OPTIONS, "table")


@dataclass(frozen=True)
class TableChoice:
    """What the options choose; `window` 0 means single rows.

    `sparse` labels may be missing; `late` is the file of labels that has them by `ident`.
    """

    source: str
    inputs: tuple[str, ...]
    labels: tuple[str, ...]
    group: str | None
    time: str | None
    window: int
    stride: int
    horizon: int
    change: bool
    fill: Fill
    sparse: bool = False
    ident: str | None = None
    late: Path | None = None
    sequence: str | None = None


def choose(table: Table, options: Mapping[str, str], source: str) -> TableChoice:
    """What the options choose of a table; `ConfigError` with the remedy for what it does not have."""
    path, names = table.path, header_of(table)
    labels, ignored = names_in(options, "label"), names_in(options, "ignore")
    group, time, ident, sequence = (options.get(key) for key in ("group", "time", "id", "sequence"))
    late = Path(options["labels"]).expanduser() if "labels" in options else None
    if late is not None and (ident is None or len(labels) != 1):
        raise ConfigError(
            f"{source}: labels={late} needs id=COLUMN, which both files have, and label=COLUMN, which that "
            "file has"
        )
    horizon = whole_number(options, "horizon", 0, least=1, source=source)
    # What is forecast may be known until now.
    others = {*(() if horizon else labels), *ignored, group, time, ident, sequence, ROW}
    number, first = first_row(table)
    inputs = names_in(options, "columns") or tuple(name for name in names if name not in others)
    single = (group, time, ident, sequence)
    stated = (*(() if late else labels), *inputs, *ignored, *(name for name in single if name is not None))
    unknown = next((name for name in stated if name not in names), None)
    if unknown is not None:
        raise ConfigError(f"{path} has no column '{unknown}'{nearest(unknown, names)}: {', '.join(names)}")
    unfit = next((name for name in inputs if name in first and not is_number(first[name])), None)
    if unfit is not None:
        raise ConfigError(
            f"{table.place(number)}: column '{unfit}' is {first[unfit][:40]!r}, no number: leave it out with "
            f"ignore={unfit}, or state the inputs with columns=..."
        )
    if not inputs:
        raise ConfigError(f"{path} has no column of numbers to learn from: state columns=...")
    window = whole_number(options, "window", 0, least=1, source=source)
    if horizon and not (window and labels):
        raise ConfigError(
            f"{source}: horizon={horizon} forecasts labels after a window: state label and window"
        )
    stride = whole_number(options, "stride", 1, least=1, source=source)
    fill = Fill.parsed(options.get("missing", "refuse"), source=source)
    change = options.get("change", "no")
    if change not in ("yes", "no") or (change == "yes" and not horizon):
        raise ConfigError(f"{source}: change={change} is yes or no, and needs a horizon")
    unlabelled = options.get("unlabelled", "refuse")
    if unlabelled not in ("refuse", "drop"):
        raise ConfigError(f"{source}: unlabelled={unlabelled} is refuse or drop")
    return TableChoice(
        source,
        inputs,
        labels,
        group,
        time,
        window,
        stride,
        horizon,
        change == "yes",
        fill,
        sparse=bool(labels) and (late is not None or unlabelled == "drop"),
        ident=ident,
        late=late,
        sequence=sequence,
    )
