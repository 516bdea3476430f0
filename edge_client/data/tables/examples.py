"""Rows of a table, or windows of rows, as examples; `kinds` lists the kinds of tables,
`options` their options.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.columns import features_of
from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.said_once import say_once
from edge_client.data.tables.csv_table import csv_table
from edge_client.data.tables.labels import labels_of, rows_with_labels, warn_if_coarse
from edge_client.data.tables.options import TableChoice, choose, numbering, say_numbering
from edge_client.data.tables.rows import Mask, read_rows
from edge_client.data.tables.table import Column, Table, TablePlan, TableRows, first_row
from edge_client.data.tables.values import as_text, gaps_in, is_truth, without_repeated_hours
from schemas.errors import ConfigError, format_count
from schemas.values import Feature, Preprocessing

log = logging.getLogger(__name__)

REMEDY = "write its differences into a column of their own"


def read_table(table: Table, options: Mapping[str, str], *, source: str) -> LabelledData:
    """The examples of a table with these options: rows [columns] or windows [columns, window] in float32.

    Their preprocessing subtracts each column's mean and divides by its standard deviation in this file, and
    labels that are numbers likewise. Without `label` all labels are 0. Raises `ConfigError` with file, line,
    column and remedy.
    """
    choice = choose(table, options, source)
    rows = read_rows(table, _plan(choice))
    choice = _without_numbering(table, rows, choice)
    settles_at = [table.settles_at]
    if choice.late is not None:
        late = csv_table(choice.late)
        settles_at.append(late.settles_at)
        (label,), ident = choice.labels, choice.ident or ""
        rows.columns[label] = _late_labels(late, rows.columns[ident].tolist(), ident=ident, label=label)
    breaks = _breaks(rows, choice)
    ends = rows_with_labels(_ends(len(rows), rows.columns, breaks, choice), rows.columns, choice)
    labels, names = labels_of(rows.columns, ends, choice)
    about, values = _inputs(rows, choice)
    about = about.model_copy(update={"columns": _features(table, values, choice)})
    if labels.ndim > 1:
        mean, std = _statistics(labels)
        about = about.model_copy(update={"target_mean": mean, "target_std": std})
    if choice.window:
        views = np.lib.stride_tricks.sliding_window_view(values, choice.window, axis=0)
        images = np.ascontiguousarray(views[ends - (choice.window - 1)])
    else:
        # All rows are not copied.
        images = values if len(ends) == len(values) else values[ends]
    data = make_labelled_data(images, labels, class_names=names, preprocessing=about)
    soonest = min((moment for moment in settles_at if moment is not None), default=None)
    skipped = table.skipped_files or rows.skipped
    return replace(data, skipped=skipped, settles_at=soonest, unlabelled=not choice.labels)


def _plan(choice: TableChoice) -> TablePlan:
    """The columns to read: labels that are forecast are numbers, others may be text."""
    further = (choice.group, choice.ident)
    inside = () if choice.late else choice.labels
    numbers = (*choice.inputs, *(inside if choice.horizon and not choice.sparse else ()), choice.sequence)
    return TablePlan(
        numbers=tuple(dict.fromkeys(name for name in numbers if name is not None)),
        labels=inside,
        texts=tuple(name for name in further if name is not None),
        times=choice.times,
        time_format=choice.time_format,
        sparse=inside if choice.sparse else (),
        group=choice.group,
        fill=choice.fill,
        broken=choice.broken,
    )


def _without_numbering(table: Table, rows: TableRows, choice: TableChoice) -> TableChoice:
    """The choice without inputs that turned out to number the rows, unless they are named."""
    if choice.named:
        return choice
    found = numbering({name: rows.columns[name] for name in choice.inputs})
    inputs = tuple(name for name in choice.inputs if name not in found)
    say_numbering(table, found, inputs)
    if not inputs:
        raise ConfigError(
            f"{table.path} has no column of numbers but row numbers", remedy="state columns=..."
        )
    return replace(choice, inputs=inputs)


def _breaks(rows: TableRows, choice: TableChoice) -> Mask:
    """Where [N - 1] a row begins another series: of another group, behind a broken row, or a gap in time."""
    breaks = np.zeros(len(rows) - 1, bool)
    if choice.group is not None:
        groups = rows.columns[choice.group]
        breaks = groups[1:] != groups[:-1]
    if rows.times is not None:
        breaks |= _gaps(rows, ~breaks, choice)
    return np.asarray(breaks | (np.diff(rows.broken_before) != 0))


def _gaps(rows: TableRows, is_following: Mask, choice: TableChoice) -> Mask:
    """Where [N - 1] a series has a gap in time; `ConfigError` where its times go back."""
    assert rows.times is not None
    times, name, repeated = rows.times, " and ".join(choice.times), 0
    if rows.is_local:
        times, repeated = without_repeated_hours(times, is_following)
    back = is_following & (np.diff(times) < 0)
    if back.any():
        place = int(np.argmax(back)) + 1
        earlier, later = (as_text(rows.times[at], is_local=rows.is_local) for at in (place, place - 1))
        raise ConfigError(
            f"row {place + 1} is earlier than row {place}",
            place=choice.source,
            remedy=f"sort the file by '{name}'",
            quoted=f"{earlier}, before {later}",
        )
    if repeated:
        say_once(f"{choice.source}: '{name}' goes back by an hour in autumn, and the series continues")
    gaps = gaps_in(times, is_following, choice.gap)
    if choice.window and gaps.any():
        say_once(
            f"{choice.source}: no window reaches over gaps in '{name}' ({gaps.sum()}, the shortest of "
            f"{np.diff(times)[gaps].min():g} s): gap= states what is one"
        )
    return gaps


def _ends(count: int, columns: Mapping[str, Column], breaks: Mask, choice: TableChoice) -> NDArray[np.int64]:
    """The last row of each example."""
    if not choice.window:
        return np.arange(0, count, choice.stride)
    numbers = columns[choice.sequence].astype(np.int64) if choice.sequence is not None else None
    ends = window_ends(
        count, breaks, window=choice.window, stride=choice.stride, after=choice.horizon, numbers=numbers
    )
    if not len(ends):
        edges = np.concatenate([[-1], np.flatnonzero(breaks), [count - 1]])
        needed, longest = choice.window + choice.horizon, np.diff(edges).max()
        raise ConfigError(
            f"window={choice.window} and horizon={choice.horizon} need a series of {needed} rows, and the "
            f"file has {count} in series of at most {longest}",
            place=choice.source,
        )
    return ends


def _inputs(rows: TableRows, choice: TableChoice) -> tuple[Preprocessing, NDArray[np.float32]]:
    """The statistics of all rows, and the rows [N, columns]; the columns are used up."""
    values, mean, std = list[NDArray[np.float32]](), tuple[float, ...](), tuple[float, ...]()
    for name in choice.inputs:
        # One after the other, as both kinds of all columns take half as much memory again.
        column = rows.columns.pop(name)
        warn_if_coarse(column, f"{choice.source}: column '{name}'", REMEDY)
        values.append(column.astype(np.float32))
        own_mean, own_std = _statistics(column[:, None])
        mean, std = mean + own_mean, std + own_std
    return Preprocessing(scale=1.0, mean=mean, std=std), np.stack(values, axis=1)


def _features(table: Table, rows: NDArray[np.float32], choice: TableChoice) -> tuple[Feature, ...]:
    """The inputs with their units, and with their kinds as far as these rows [N, columns] tell them."""
    first = first_row(table)[1]
    # Zeros and ones may be numbers or truth values.
    is_binary = dict(zip(choice.inputs, ((rows == 0) | (rows == 1)).all(axis=0), strict=True))
    of_binary = {name: "truth" if is_truth(first.get(name, "")) else "" for name in choice.inputs}
    kinds = [of_binary[name] if is_binary[name] else "number" for name in choice.inputs]
    features = features_of(choice.inputs, table.units)
    if not features:
        say_once(f"{choice.source}: the columns are taken in their order: they are many, or one has no name")
    return tuple(f.model_copy(update={"kind": kind}) for f, kind in zip(features, kinds, strict=False))


def _statistics(rows: Column) -> tuple[tuple[float, ...], tuple[float, ...]]:
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    # A constant column says nothing, and stays near 0.
    deviation[deviation < 1e-12 * np.maximum(1, np.abs(mean))] = 1.0
    return tuple(mean.tolist()), tuple(deviation.tolist())


def window_ends(
    count: int,
    breaks: NDArray[Any] | None,
    *,
    window: int,
    stride: int,
    after: int = 0,
    numbers: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The last rows of all windows of `window` rows, of `count`, with `after` more rows behind them.

    At `breaks` [count - 1] the next row begins another series: no window, nor what follows it, crosses one.
    Windows begin every `stride` rows of a series. With the rows' `numbers` [count], a gap begins another
    series, and windows end at multiples of `stride`, so that they stay the same when earlier rows are gone.
    """
    breaks = np.zeros(max(count - 1, 0), bool) if breaks is None else breaks.copy()
    if numbers is not None:
        breaks |= np.diff(numbers) != 1
    edges = np.concatenate([[0], np.flatnonzero(breaks) + 1, [count]]).astype(np.int64)
    found = []
    for start, stop in pairwise(edges.tolist()):
        first = start + window - 1
        if numbers is not None and first < stop:
            first += int(-numbers[first] % stride)
        found.append(np.arange(first, stop - after, stride, dtype=np.int64))
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _late_labels(table: Table, ids: Sequence[str], *, ident: str, label: str) -> Column:
    """The labels [N] of the examples with these ids [N], "" or NaN where there is none yet.

    The table has the columns `ident` and `label`; of an id that occurs twice, the last line counts. Labels
    without an example are counted in the log. Raises `ConfigError` if no label names an example.
    """
    read = read_rows(table, TablePlan(labels=(label,), texts=(ident,), sparse=(label,))).columns
    none = "" if read[label].dtype.kind == "U" else math.nan
    is_given = read[label] == read[label] if none != "" else read[label] != ""
    known = dict(zip(read[ident][is_given].tolist(), read[label][is_given].tolist(), strict=True))
    strangers = sorted(known.keys() - set(ids))
    if known and len(strangers) == len(known):
        raise ConfigError(
            f"none of {format_count(len(known), 'label')} names an example",
            place=table.path,
            remedy=f"compare its column '{ident}' with that of the examples",
            quoted=f"'{strangers[0]}' here, '{ids[0]}' there",
        )
    if strangers:
        log.warning("%s: no example for %s", table.path, format_count(len(strangers), "label"))
    return np.array([known.get(name, none) for name in ids])
