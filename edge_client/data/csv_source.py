"""The source `csv:PATH?label=NAME&...`: rows, or windows of rows, of a table as examples.

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
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData, labelled
from edge_client.data.source_options import names_in, options_of, whole_number
from edge_client.data.tables import ROW, Fill, TablePlan, first_row, header_of, is_number, read_columns
from edge_client.data.validation import checked_labels
from edge_client.data.windows import window_ends
from schemas.errors import ConfigError, nearest
from schemas.values import Preprocessing

OPTIONS = ("label", "columns", "ignore", "group", "time", "window", "stride", "horizon", "change", "missing")
Column = NDArray[Any]


@dataclass(frozen=True)
class Choice:
    """What the options choose; `window` 0 means single rows."""

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


def read_csv(path: Path, text: str) -> LabelledData:
    """The examples of a file with these options: rows [columns] or windows [columns, window] in float32.

    Their preprocessing subtracts each column's mean and divides by its standard deviation in this file, and
    labels that are numbers likewise. Without `label` all labels are 0. Raises `ConfigError` with file, line,
    column and remedy.
    """
    choice = _choice(path, text)
    further = tuple(name for name in (choice.group, choice.time) if name is not None)
    numeric = {name for name in choice.labels if is_number(first_row(path)[name])}
    plan = TablePlan(
        numbers=tuple(dict.fromkeys([*choice.inputs, *(n for n in choice.labels if n in numeric)])),
        texts=(*(name for name in choice.labels if name not in numeric), *further),
        fill=choice.fill,
        group=choice.group,
    )
    columns = read_columns(path, plan)
    if choice.time is not None:
        _check_order(columns[choice.time], columns.get(choice.group or ""), choice)
    rows = np.stack([columns[name] for name in choice.inputs], axis=1)
    ends = _ends(len(rows), columns.get(choice.group or ""), choice)
    images = rows[ends] if not choice.window else _windows(rows, ends, choice.window)
    labels, names = _labels(columns, ends, choice)
    about = _normalised(rows)
    if labels.ndim > 1:
        mean, std = _statistics(labels)
        about = about.model_copy(update={"target_mean": mean, "target_std": std})
    data = labelled(images, labels, class_names=names, preprocessing=about)
    return replace(data, columns=choice.inputs)


def _choice(path: Path, text: str) -> Choice:
    source = f"csv:{path}"
    options = options_of(text, OPTIONS, source=source)
    names = header_of(path)
    labels, ignored = names_in(options, "label"), names_in(options, "ignore")
    group, time = options.get("group"), options.get("time")
    horizon = whole_number(options, "horizon", 0, least=1, source=source)
    # What is forecast may be known until now.
    others = {*(() if horizon else labels), *ignored, group, time, ROW}
    first = first_row(path)
    inputs = names_in(options, "columns") or tuple(name for name in names if name not in others)
    stated = (*labels, *inputs, *ignored, *(name for name in (group, time) if name is not None))
    unknown = next((name for name in stated if name not in names), None)
    if unknown is not None:
        raise ConfigError(f"{path} has no column '{unknown}'{nearest(unknown, names)}: {', '.join(names)}")
    unfit = next((name for name in inputs if name in first and not is_number(first[name])), None)
    if unfit is not None:
        raise ConfigError(
            f"{path} line 2: column '{unfit}' is {first[unfit][:40]!r}, no number: leave it out with "
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
    return Choice(source, inputs, labels, group, time, window, stride, horizon, change == "yes", fill)


def _ends(count: int, groups: Column | None, choice: Choice) -> NDArray[np.int64]:
    """The last row of each example."""
    if not choice.window:
        return np.arange(0, count, choice.stride)
    ends = window_ends(count, groups, window=choice.window, stride=choice.stride, after=choice.horizon)
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


def _statistics(rows: Column) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation of each column."""
    mean, deviation = rows.mean(axis=0, dtype=np.float64), rows.std(axis=0, dtype=np.float64)
    # A constant column says nothing, and stays near 0.
    deviation[deviation < 1e-12] = 1.0
    return tuple(mean.tolist()), tuple(deviation.tolist())


def _labels(
    columns: Mapping[str, Column], ends: NDArray[np.int64], choice: Choice
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


def _check_order(times: Column, groups: Column | None, choice: Choice) -> None:
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
