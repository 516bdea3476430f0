"""The sources `csv:PATH?...` and `sqlite:PATH?...`: rows of a table, or windows of rows, as examples.

`table_options` lists the options.
"""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.columns import features_of
from edge_client.data.dataset import LabelledData, labelled
from edge_client.data.late_labels import late_labels
from edge_client.data.source_options import options_of
from edge_client.data.table_options import OPTIONS, SQLITE_OPTIONS, TableChoice, choose
from edge_client.data.tables import (
    MISSING,
    CsvTable,
    Table,
    TablePlan,
    first_row,
    is_number,
    read_columns,
)
from edge_client.data.validation import checked_labels
from edge_client.data.windows import window_ends
from schemas.errors import ConfigError
from schemas.values import Feature, Preprocessing

log = logging.getLogger(__name__)

Column = NDArray[Any]


def read_csv(path: Path, text: str) -> LabelledData:
    """The examples of a CSV file with these options."""
    return read_table(CsvTable(path), options_of(text, OPTIONS, source=f"csv:{path}"), source=f"csv:{path}")


def read_parquet(path: Path, text: str) -> LabelledData:
    """The examples of a Parquet file with these options."""
    from edge_client.data.parquet_table import ParquetTable

    source = f"parquet:{path}"
    return read_table(ParquetTable(path), options_of(text, OPTIONS, source=source), source=source)


def read_sqlite(path: Path, text: str) -> LabelledData:
    """The examples of a table of an SQLite file with these options."""
    # Imported here: sqlite3 takes 1 MB.
    from edge_client.data.sqlite_table import SqliteTable

    options = options_of(text, SQLITE_OPTIONS, source=f"sqlite:{path}")
    return read_table(SqliteTable(path, options.get("table", "")), options, source=f"sqlite:{path}")


def read_table(table: Table, options: Mapping[str, str], *, source: str) -> LabelledData:
    """The examples of a table with these options: rows [columns] or windows [columns, window] in float32.

    Their preprocessing subtracts each column's mean and divides by its standard deviation in this file, and
    labels that are numbers likewise. Without `label` all labels are 0. Raises `ConfigError` with file, line,
    column and remedy.
    """
    choice = choose(table, options, source)
    columns = read_columns(table, _plan(table, choice))
    if choice.sparse:
        columns = _with_sparse_labels(columns, choice)
    if choice.time is not None:
        _check_order(columns[choice.time], columns.get(choice.group or ""), choice)
    rows = np.stack([columns[name] for name in choice.inputs], axis=1)
    ends = _labelled(_ends(len(rows), columns, choice), columns, choice)
    images = rows[ends] if not choice.window else _windows(rows, ends, choice.window)
    labels, names = _labels(columns, ends, choice)
    about = _normalised(rows).model_copy(update={"columns": _features(table, rows, choice)})
    if labels.ndim > 1:
        mean, std = _statistics(labels)
        about = about.model_copy(update={"target_mean": mean, "target_std": std})
    return labelled(images, labels, class_names=names, preprocessing=about)


def _plan(table: Table, choice: TableChoice) -> TablePlan:
    """The columns to read: labels that may be missing as texts, else as what the first row has."""
    further = (choice.group, choice.time, choice.ident)
    inside = () if choice.late else choice.labels
    first = {} if choice.sparse else first_row(table)[1]
    numeric = tuple(name for name in inside if name in first and is_number(first[name]))
    sequence = (choice.sequence,) if choice.sequence is not None else ()
    return TablePlan(
        numbers=tuple(dict.fromkeys([*choice.inputs, *numeric, *sequence])),
        texts=(
            *(name for name in inside if not choice.sparse and name not in numeric),
            *(name for name in further if name is not None),
        ),
        optional=inside if choice.sparse else (),
        fill=choice.fill,
        group=choice.group,
    )


def _with_sparse_labels(columns: Mapping[str, Column], choice: TableChoice) -> dict[str, Column]:
    """The columns with all labels; those that are numbers have NaN where one is missing."""
    found = dict(columns)
    if choice.late is not None:
        (label,) = choice.labels
        found[label] = late_labels(
            choice.late, columns[choice.ident or ""], ident=choice.ident or "", label=label
        )
    for name in choice.labels:
        known = found[name][found[name] != ""]
        if all(map(is_number, known.tolist())):
            found[name] = np.where(found[name] == "", "nan", found[name]).astype(np.float32)
    return found


def _labelled(
    ends: NDArray[np.int64], columns: Mapping[str, Column], choice: TableChoice
) -> NDArray[np.int64]:
    """The last rows of the examples that have all their labels."""
    if not choice.sparse:
        return ends
    steps = range(choice.horizon + 1) if choice.change else range(1, choice.horizon + 1)
    has = np.ones(len(ends), bool)
    for name in choice.labels:
        known = columns[name] != "" if columns[name].dtype.kind == "U" else ~np.isnan(columns[name])
        for step in steps if choice.horizon else (0,):
            has &= known[ends + step]
    if not has.any():
        raise ConfigError(
            f"{choice.source}: none of {len(ends)} examples has a label yet: label some, or learn without "
            'labels, for instance [model] task = "anomaly"'
        )
    return ends[has]


def _ends(count: int, columns: Mapping[str, Column], choice: TableChoice) -> NDArray[np.int64]:
    """The last row of each example."""
    if not choice.window:
        return np.arange(0, count, choice.stride)
    numbers = columns[choice.sequence].astype(np.int64) if choice.sequence is not None else None
    ends = window_ends(
        count,
        columns.get(choice.group or ""),
        window=choice.window,
        stride=choice.stride,
        after=choice.horizon,
        numbers=numbers,
    )
    if not len(ends):
        needed = choice.window + choice.horizon
        raise ConfigError(
            f"{choice.source}: window={choice.window} and horizon={choice.horizon} need a series of {needed} "
            f"rows, and the file has {count}"
        )
    return ends


def _windows(rows: Column, ends: NDArray[np.int64], window: int) -> Column:
    """Windows [N, columns, window] that end at these rows."""
    views = np.lib.stride_tricks.sliding_window_view(rows, window, axis=0)
    return np.ascontiguousarray(views[ends - (window - 1)])


def _normalised(rows: Column) -> Preprocessing:
    mean, std = _statistics(rows)
    return Preprocessing(scale=1.0, mean=mean, std=std)


def _features(table: Table, rows: Column, choice: TableChoice) -> tuple[Feature, ...]:
    """The inputs with their units, and with their kinds as far as these rows [N, columns] tell them."""
    first = first_row(table)[1]
    is_binary = ((rows == 0) | (rows == 1)).all(axis=0)
    kinds = [
        _kind(first.get(name, ""), binary) for name, binary in zip(choice.inputs, is_binary, strict=True)
    ]
    features = features_of(choice.inputs, table.units)
    if not features:
        log.info("%s: the columns are taken in their order: they are many, or one has no name", choice.source)
    return tuple(f.model_copy(update={"kind": kind}) for f, kind in zip(features, kinds, strict=False))


def _kind(first: str, is_binary: bool) -> str:
    """The kind of a column whose first value is this text: zeros and ones may be either."""
    if not is_binary:
        return "number"
    return "truth" if first.strip().isalpha() and first.strip().lower() not in MISSING else ""


def _statistics(rows: Column) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column."""
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    # A constant column says nothing, and stays near 0.
    deviation[deviation < 1e-12] = 1.0
    return tuple(mean.tolist()), tuple(deviation.tolist())


def _labels(
    columns: Mapping[str, Column], ends: NDArray[np.int64], choice: TableChoice
) -> tuple[Column, tuple[str, ...]]:
    """Labels and their names: none are zeros."""
    if not choice.labels:
        return np.zeros(len(ends), np.int64), ()
    if choice.horizon:
        steps = range(1, choice.horizon + 1)
        now = {name: columns[name][ends] * np.float32(choice.change) for name in choice.labels}
        ahead = [columns[name][ends + step] - now[name] for step in steps for name in choice.labels]
        what = " change" if choice.change else ""
        names = tuple(f"{name}+{step}{what}" for step in steps for name in choice.labels)
        return np.stack(ahead, axis=1), names
    values = [columns[name][ends] for name in choice.labels]
    if len(values) > 1:
        return np.stack(values, axis=1).astype(np.float32), choice.labels
    (own,) = values
    if own.dtype.kind == "U":
        known, numbers = np.unique(own, return_inverse=True)
        return numbers, tuple(known.tolist())
    if (own == np.floor(own)).all() and (own >= 0).all():
        return checked_labels(own, f"{choice.source}: column '{choice.labels[0]}'", images=len(own)), ()
    return own[:, None], choice.labels


def _check_order(times: Column, groups: Column | None, choice: TableChoice) -> None:
    """Refuse a series whose times go back."""
    values = times.astype(np.float64) if all(map(is_number, times[:100])) else times
    back = values[1:] < values[:-1]
    if groups is not None:
        back &= groups[1:] == groups[:-1]
    if back.any():
        place = int(np.argmax(back)) + 1
        raise ConfigError(
            f"{choice.source}: row {place + 1} is of {times[place]}, before {times[place - 1]}: "
            f"sort the file by '{choice.time}'"
        )
