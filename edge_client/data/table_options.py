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
| `id`, `labels` | labels are in this other CSV file, next to the id of their example |
| `sequence` | a column of consecutive numbers: a gap begins another series |
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edge_client.data.source_options import names_in, whole_number
from edge_client.data.tables import ROW, Fill, Table, first_row, header_of, is_number
from schemas.errors import ConfigError, nearest

OPTIONS = (
    *("label", "columns", "ignore", "group", "time", "window", "stride", "horizon", "change", "missing"),
    *("unlabelled", "id", "labels", "sequence"),
)


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
    names, labels = header_of(table), names_in(options, "label")
    late = _late(options, labels, source)
    horizon = whole_number(options, "horizon", 0, least=1, source=source)
    # What is forecast may be known until now.
    inputs = _inputs(table, names, options, learned=() if horizon else labels, inside=() if late else labels)
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
        options.get("group"),
        options.get("time"),
        window,
        stride,
        horizon,
        change == "yes",
        fill,
        sparse=bool(labels) and (late is not None or unlabelled == "drop"),
        ident=options.get("id"),
        late=late,
        sequence=options.get("sequence"),
    )


def _late(options: Mapping[str, str], labels: Sequence[str], source: str) -> Path | None:
    """The other file that has the labels, if any."""
    if "labels" not in options:
        return None
    late = Path(options["labels"]).expanduser()
    if "id" not in options or len(labels) != 1:
        raise ConfigError(
            f"{source}: labels={late} needs id=COLUMN, which both files have, and label=COLUMN, which that "
            "file has"
        )
    return late


def _inputs(
    table: Table,
    names: Sequence[str],
    options: Mapping[str, str],
    *,
    learned: Sequence[str],
    inside: Sequence[str],
) -> tuple[str, ...]:
    """The input columns: those stated, else all of numbers but the `learned` ones and those of other options.

    The table has all columns that an option names, and the labels `inside` it; `ConfigError` otherwise.
    """
    ignored = names_in(options, "ignore")
    single = [options[key] for key in ("group", "time", "id", "sequence") if key in options]
    others = {*learned, *ignored, *single, ROW}
    number, first = first_row(table)
    inputs = names_in(options, "columns") or tuple(name for name in names if name not in others)
    stated = (*inside, *inputs, *ignored, *single)
    unknown = next((name for name in stated if name not in names), None)
    if unknown is not None:
        near = nearest(unknown, names)
        raise ConfigError(f"{table.path} has no column '{unknown}'{near}: {', '.join(names)}")
    unfit = next((name for name in inputs if name in first and not is_number(first[name])), None)
    if unfit is not None:
        raise ConfigError(
            f"{table.place(number)}: column '{unfit}' is {first[unfit][:40]!r}, no number: leave it out with "
            f"ignore={unfit}, or state the inputs with columns=..."
        )
    if not inputs:
        raise ConfigError(f"{table.path} has no column of numbers to learn from: state columns=...")
    return inputs
