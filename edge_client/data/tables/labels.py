"""The labels of a table's examples: classes or numbers, of a row or of those behind a window."""

import logging
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edge_client.data import said_once, validation
from edge_client.data.classes import shorten_names
from edge_client.data.tables import options, table, values
from edge_client.data.tasks.labels import MAX_WHOLE, classes_by_value
from schemas.errors import ConfigError, format_count


def rows_with_labels(
    ends: NDArray[np.int64], columns: Mapping[str, table.Column], choice: options.TableChoice
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
            f"none of {format_count(len(ends), 'example')} has a label yet",
            place=choice.source,
            remedy='label some, or learn without labels, for instance [model] task = "anomaly"',
        )
    return ends[has]


def labels_of(
    columns: Mapping[str, table.Column], ends: NDArray[np.int64], choice: options.TableChoice
) -> tuple[table.Column, tuple[str, ...]]:
    """Labels and their names: none are zeros."""
    if not choice.labels:
        return np.zeros(len(ends), np.int64), ()
    if choice.horizon:
        return _forecast(columns, ends, choice)
    if len(choice.labels) > 1:
        return np.stack(
            [_label_numbers(columns, ends, name, choice) for name in choice.labels], axis=1
        ), choice.labels
    own, where = columns[choice.labels[0]][ends], f"{choice.source}: column '{choice.labels[0]}'"
    if choice.kind != "numbers":
        if own.dtype.kind == "U":
            classes, numbers = np.unique(own, return_inverse=True)
            return numbers, tuple(classes.tolist())
        if (own == np.floor(own)).all() and own.min() >= 0:
            return validation.checked_labels(own, where, images=len(own)), ()
        found = classes_by_value(own, most=validation.MAX_CLASSES if choice.kind else MAX_WHOLE)
        if found is not None:
            said_once.say_once(
                f"{where} has the classes {shorten_names(found[1])}: kind=numbers takes them for numbers"
            )
            return found
        if choice.kind == "classes":
            raise ConfigError(f"{where} has fractions, which are not classes")
    return _label_numbers(columns, ends, choice.labels[0], choice)[:, None], choice.labels


def _forecast(
    columns: Mapping[str, table.Column], ends: NDArray[np.int64], choice: options.TableChoice
) -> tuple[table.Column, tuple[str, ...]]:
    """The labels of the steps behind each window, or by how much they change, and their names."""
    steps = [(step, name) for step in range(1, choice.horizon + 1) for name in choice.labels]
    if choice.change:
        for name in choice.labels:
            _check_numbers(columns, name, choice)
        changes = [columns[name][ends + step] - columns[name][ends] for step, name in steps]
        return np.stack(changes, axis=1).astype(np.float32), tuple(
            f"{name}+{step} change" for step, name in steps
        )
    ahead = [_label_numbers(columns, ends + step, name, choice) for step, name in steps]
    return np.stack(ahead, axis=1), tuple(f"{name}+{step}" for step, name in steps)


def _label_numbers(
    columns: Mapping[str, table.Column], at: NDArray[np.int64], name: str, choice: options.TableChoice
) -> NDArray[np.float32]:
    """A column's numbers in these rows as labels."""
    _check_numbers(columns, name, choice)
    column = columns[name]
    remedy = "learn its changes with change=yes" if choice.horizon else "learn its differences"
    warn_if_coarse(column[np.isfinite(column)], f"{choice.source}: column '{name}'", remedy)
    numbers: NDArray[np.float32] = column[at].astype(np.float32)
    return numbers


def _check_numbers(columns: Mapping[str, table.Column], name: str, choice: options.TableChoice) -> None:
    if columns[name].dtype.kind == "U":
        words = set(columns[name].tolist()) - {""}
        first = min(word for word in words if not values.is_number(word) or values.is_truth(word))
        raise ConfigError(
            f"column '{name}' has texts, not numbers to learn", place=choice.source, quoted=repr(first)
        )


MAX_LOST = 0.01  # share of steps that may be lost in float32, in which networks compute, unwarned


def warn_if_coarse(column: values.Numbers, where: str, remedy: str) -> None:
    """Warn once of a column whose steps from row to row are lost in float32."""
    steps = np.diff(column) != 0
    lost = np.count_nonzero(steps & (np.diff(column.astype(np.float32)) == 0))
    if lost > MAX_LOST * np.count_nonzero(steps):
        largest = np.abs(column).max()
        said_once.say_once(
            f"{where}: networks (float32) tell its largest values apart in steps of "
            f"{np.spacing(np.float32(largest)):.3g}, and {lost} smaller ones are lost: {remedy}, or leave it "
            "out",
            logging.WARNING,
        )
