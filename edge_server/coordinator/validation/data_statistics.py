"""Checks an answer to a round of statistics: its arrays, and whether any data has these sums."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from edge_client.data.tasks.registry import learning_task
from edge_server.coordinator.validation.consistency import out_of_bounds, wrong_shape
from schemas import messages, statistics, values
from schemas.errors import PeerError, Reason
from schemas.tensors.arrays import Arrays, Groups, kind_of

ROUNDING = 1e-9  # Relative tolerance for rounding in float64
MAX_VALUE = 3.5e38  # Examples are float32 at most
Shapes = dict[str, dict[str, tuple[int, ...]]]
Sums = Mapping[str, NDArray[np.float64]]


def answer_shapes(request: statistics.StatisticsRequest, model: values.ModelSpec) -> Shapes:
    kind = learning_task(model.task).labels
    shapes = {statistics.FEATURES: _sum_shapes(model.input_shape[0], request.bins)}
    if kind == "numbers":
        shapes[statistics.TARGETS] = _sum_shapes(model.num_classes, request.bins)
    elif kind != "none":
        shapes[statistics.LABELS] = {statistics.COUNT: (model.num_classes,)}
    return shapes


def answer_numbers(request: statistics.StatisticsRequest, model: values.ModelSpec) -> int:
    groups = answer_shapes(request, model).values()
    return sum(math.prod(shape) for arrays in groups for shape in arrays.values())


def examine_statistics(
    update: messages.Update, groups: Groups, task: messages.TrainTask, request: statistics.StatisticsRequest
) -> None:
    """Raise `PeerError` unless `groups` is an answer to the task that some data has."""
    examples, shape = update.metrics.examples, task.model.input_shape
    _check_kinds(update, groups, task, request)
    known = {group: _read(group, arrays) for group, arrays in groups.items()}
    if examples < 1:
        raise out_of_bounds("the statistics are those of no example")
    _check_sums(
        statistics.FEATURES, known[statistics.FEATURES], request.features, examples * math.prod(shape[1:])
    )
    if statistics.TARGETS in known:
        _check_sums(statistics.TARGETS, known[statistics.TARGETS], request.targets, examples)
    if statistics.LABELS in known:
        single = learning_task(task.model.task).labels == "classes"
        _check_labels(known[statistics.LABELS][statistics.COUNT], examples, single=single)


def _sum_shapes(features: int, bins: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(statistics.SUMS, (features,)) | (
        {statistics.HISTOGRAM: (features, bins + 2)} if bins else {}
    )


def _read(group: str, arrays: Arrays) -> Sums:
    """The arrays in memory; `PeerError` for numbers that are not finite."""
    found = {name: np.asarray(arrays[name], np.float64) for name in arrays}
    for name, array in found.items():
        if not np.isfinite(array).all():
            raise PeerError(f"'{group}/{name}' has numbers that are not finite", reason=Reason.NOT_FINITE)
    return found


def _check_kinds(
    update: messages.Update, groups: Groups, task: messages.TrainTask, request: statistics.StatisticsRequest
) -> None:
    """Groups, names, types and shapes, before anything is read."""
    expected = answer_shapes(request, task.model)
    found = {group: set(arrays) for group, arrays in groups.items()}
    if update.spec != task.spec or found != {group: set(arrays) for group, arrays in expected.items()}:
        raise wrong_shape(
            f"expected the groups {sorted(expected)} with their arrays, got {sorted(found)[:5]}"
        )
    for group, arrays in expected.items():
        for name, shape in arrays.items():
            kind = kind_of(groups[group], name)
            if kind != (np.dtype("<f8"), shape):
                detail = f"'{group}/{name}': expected float64 {shape}, got {kind[0]} {kind[1]}"
                raise wrong_shape(detail)


def _check_sums(group: str, sums: Sums, ranges: statistics.Ranges | None, count: int) -> None:
    """Sums that some values have: counts as stated, the mean among the values, a variance that is possible.

    Values between least and most have a variance of at most (most - mean) (mean - least) (Bhatia and Davis
    2000).
    """
    centre = np.zeros(len(sums[statistics.COUNT])) if ranges is None else np.asarray(ranges.centre)
    least, most = sums[statistics.MIN] - centre, sums[statistics.MAX] - centre
    if bool((sums[statistics.COUNT] != count).any()):
        raise out_of_bounds(f"'{group}' has other counts than {count}")
    if bool((np.maximum(np.abs(sums[statistics.MIN]), np.abs(sums[statistics.MAX])) > MAX_VALUE).any()):
        raise out_of_bounds(f"'{group}' has values beyond {MAX_VALUE:g}")
    mean, scale = sums[statistics.SUM] / count, np.maximum(np.abs(least), np.abs(most)) + np.abs(centre)
    near = ROUNDING * scale
    if bool(((least > most) | (mean < least - near) | (mean > most + near)).any()):
        raise out_of_bounds(f"'{group}' has a mean that is not between its least and most value")
    variance = sums[statistics.SQUARES] / count - np.square(mean)
    allowed = ROUNDING * np.square(scale)
    if bool(((variance < -allowed) | (variance > (most - mean) * (mean - least) + allowed)).any()):
        raise out_of_bounds(f"'{group}' has a variance that no values between its least and most have")
    if statistics.HISTOGRAM in sums:
        _check_counts(f"{group}/{statistics.HISTOGRAM}", sums[statistics.HISTOGRAM])
        if bool((sums[statistics.HISTOGRAM].sum(1) != count).any()):
            raise out_of_bounds(f"'{group}/{statistics.HISTOGRAM}' does not count {count} values")


def _check_labels(counts: NDArray[np.float64], examples: int, *, single: bool) -> None:
    """Counts of classes: each example has a `single` one, or any of them."""
    _check_counts(statistics.LABELS, counts)
    counted = float(counts.sum() if single else counts.max(initial=0))
    if counted > examples or (single and counted < examples):
        raise out_of_bounds(f"'{statistics.LABELS}' does not count the labels of {examples} examples")


def _check_counts(name: str, counts: NDArray[np.float64]) -> None:
    if bool(((counts < 0) | (counts != np.floor(counts))).any()):
        raise out_of_bounds(f"'{name}' has counts that are not whole numbers from 0")
