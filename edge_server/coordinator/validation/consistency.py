"""Checks whether an update's metrics agree with its task and its values are possible."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.decoding import Decoded
from edge_client.data.tasks.registry import learning_task
from edge_client.pruning.index_sets import LazySlice
from edge_server.rounds.fleet import Device
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.weighting.claims import Claims
from schemas import errors, messages
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import AnyArray, Arrays, Groups, blocks, kind_of, rows_of
from schemas.values import MetricCounts

# Magnitudes of an update's numbers, computed in one pass for all later checks.

BAND_NUMBERS = 64 * 1024  # Numbers that fit a processor's cache


@dataclass(frozen=True, slots=True)
class Magnitude:
    """Largest absolute value of `count` numbers and the sum of their squares; NaN if one is not finite."""

    largest: float
    squares: float
    count: int


Magnitudes = Mapping[str, Mapping[str, Magnitude]]  # By group and array name


def magnitudes_of(groups: Groups) -> Magnitudes:
    """The magnitude of every array, each read once, in blocks of rows."""
    return {group: {name: magnitude_of(arrays, name) for name in arrays} for group, arrays in groups.items()}


def is_moved(sizes: Magnitudes) -> bool:
    """Whether any number is not 0."""
    return any(size.largest > 0 for arrays in sizes.values() for size in arrays.values())


def magnitude_of(arrays: Arrays, name: str) -> Magnitude:
    if isinstance(arrays, Decoded) and arrays.is_scaled(name):
        return _scaled_size(arrays, name)
    largest, squares, count = 0.0, 0.0, 0
    for start, stop in blocks(kind_of(arrays, name)):
        rows = rows_of(arrays, name, start, stop).reshape(-1)
        if not rows.size:
            continue
        most = max(float(rows.max()), -float(rows.min()))
        if not math.isfinite(most):
            return Magnitude(math.nan, math.nan, count + rows.size)
        largest = max(largest, most)
        # In the array's own precision: bounds are multiples of the usual norm.
        with np.errstate(over="ignore"):
            squares += float(np.dot(rows, rows))
        count += rows.size
    return Magnitude(largest, squares, count)


def _scaled_size(arrays: Decoded, name: str) -> Magnitude:
    """The magnitude of codes with a scale per row, without multiplying them."""
    largest, squares, count = 0.0, 0.0, 0
    for start, stop in blocks(arrays.kind(name)):
        codes, scales = arrays.coded_rows(name, start, stop)
        codes = codes.reshape(len(codes), -1)
        count += codes.size
        # As int16: -128 has no int8 opposite.
        most = np.maximum(codes.max(axis=1), -codes.min(axis=1).astype(np.int16))
        with np.errstate(over="ignore", invalid="ignore"):
            farthest = float((most.astype(np.float32) * np.abs(scales)).max(initial=0))
            if not math.isfinite(farthest):
                return Magnitude(math.nan, math.nan, count)
            largest = max(largest, farthest)
            squares += float(np.dot(_squares(codes), np.square(scales, dtype=np.float64)))
    return Magnitude(largest, squares, count)


def _squares(codes: AnyArray) -> NDArray[np.float64]:
    """The sum of squares of each row, computed for a few rows at a time."""
    step = max(1, BAND_NUMBERS // max(1, codes.shape[1]))
    sums = np.empty(len(codes))
    for start in range(0, len(codes), step):
        band = codes[start : start + step].astype(np.float32)
        sums[start : start + step] = np.einsum("ij,ij->i", band, band)
    return sums


ROUNDING = 1e-5  # Relative tolerance for rounding in float32
VARIANCE = "running_var"
MAX_OBJECTS = 1000  # boxes of a class in a picture, and those that a network says there are


def check_training(update: messages.Update, task: messages.TrainTask) -> None:
    """Raise `PeerError` unless the steps fit the examples, in the task's batches and epochs, and the counts
    by class fit the examples held out.

    A device may leave out a last batch that is too small to be normalised.
    """
    plan, metrics = task.training, update.metrics
    if metrics.epochs > plan.local_epochs:
        raise out_of_bounds(f"{metrics.epochs} epochs, {plan.local_epochs} were asked for")
    full, rest = divmod(metrics.examples, plan.batch_size)
    least, most = metrics.epochs * full, metrics.epochs * (full + (rest > 0))
    if not least <= metrics.steps <= most:
        detail = f"{metrics.examples} examples in {metrics.epochs} epochs take {most}"
        raise out_of_bounds(f"{metrics.steps} steps: {detail}")
    if metrics.by_class:
        _check_counts(metrics.by_class, metrics.measured_on, task)
    if metrics.counts:
        _check_objects(metrics.counts, metrics.measured_on, task)


def _check_counts(by_class: Sequence[tuple[int, int]], held_out: int, task: messages.TrainTask) -> None:
    """Raise `PeerError` unless these can be the counts of as many examples; a device may count none."""
    if not task.by_class:
        raise out_of_bounds("counts by class were not asked for")
    if len(by_class) != task.model.num_classes:
        raise out_of_bounds(f"counts of {len(by_class)} classes, the model has {task.model.num_classes}")
    # A picture has several boxes of a class.
    most = held_out * MAX_OBJECTS if learning_task(task.model.task).labels == "boxes" else held_out
    for examples, right in by_class:
        if not right <= examples <= most:
            raise out_of_bounds(
                f"{right} of {examples} examples of a class are right, {held_out} are held out"
            )
    total = sum(examples for examples, _ in by_class)
    if learning_task(task.model.task).exclusive and total != held_out:
        raise out_of_bounds(f"the counts by class are of {total} examples, {held_out} are held out")


def _check_objects(counts: MetricCounts, held_out: int, task: messages.TrainTask) -> None:
    """Raise `PeerError` unless these can be the counts of the task's figure on as many examples."""
    widths = {metric.width for metric in learning_task(task.model.task).metrics if metric.width}
    if not task.by_class or not widths:
        raise out_of_bounds("counts of figures were not asked for")
    # An earlier version counts for the first figure alone.
    if not any({(len(counts), len(row)) for row in counts} == {(task.model.num_classes, w)} for w in widths):
        raise out_of_bounds(f"the counts of figures are not {task.model.num_classes}x{max(widths)}")
    if max(map(max, counts)) > held_out * MAX_OBJECTS:
        raise out_of_bounds(f"counts of more than {MAX_OBJECTS} objects in each of {held_out} examples")


def check_group_values(update: messages.Update, groups: Groups, rules: Sequence[GroupRule]) -> None:
    """Raise `PeerError` for a group with values that no device can measure.

    Attention is a mean of sigmoids (ATTENDING, equations 5 and 6).
    """
    for name, scores in groups.get("attention", {}).items():
        if not bool(((scores >= -ROUNDING) & (scores <= 1 + ROUNDING)).all()):
            raise out_of_bounds(f"attention behind '{name}' is not between 0 and 1")
    for rule in rules:
        if rule.name in groups:
            rule.check(groups[rule.name], update.metrics.examples)


def is_variance(name: str) -> bool:
    """Whether a parameter is a running variance."""
    return name.rpartition(".")[2] == VARIANCE


def check_variances(
    update: messages.Update, groups: Groups, params: Arrays, channel_map: ChannelMap, *, late: bool = False
) -> None:
    """Raise `PeerError` if a running variance of the device's model is below 0.

    `params` are the current global model. A `late` update (buffered mode) started from an earlier one, whose
    variances are assumed to be at most twice as large.
    """
    if not any(map(is_variance, channel_map.parameters)):
        return
    model = groups["model"]
    names = [name for name in model if is_variance(name)]
    if not names:
        return
    before = LazySlice({name: params[name] for name in names}, update.spec, channel_map)
    for name in names:
        known = np.asarray(before[name], np.float64) * (2 if late else 1)
        after = known + model[name]
        if bool((after < -ROUNDING * np.maximum(known, 1)).any()):
            raise out_of_bounds(f"'{name}' has variances below 0")


def out_of_bounds(detail: str) -> errors.PeerError:
    return errors.PeerError(detail, reason=errors.Reason.OUT_OF_BOUNDS)


def wrong_shape(detail: str) -> errors.PeerError:
    return errors.PeerError(detail, reason=errors.Reason.WRONG_SHAPE)


def cap_birth_claims(devices: Iterable[Device], claims: Claims) -> tuple[tuple[Device, ...], dict[str, str]]:
    """The devices with capped examples and free memory, and a text for each cap of examples, by device."""
    devices = tuple(devices)
    most = claims.examples(device.data.examples for device in devices)
    capped = tuple(_with_memory(with_examples(device, min(device.data.examples, most))) for device in devices)
    caps = {
        born.name: f"{born.data.examples} examples in its birth count as {device.data.examples}"
        for born, device in zip(devices, capped, strict=True)
        if device.data is not born.data
    }
    return capped, caps


def with_examples(device: Device, count: float) -> Device:
    """The device with this many examples; itself if it has them."""
    if device.data.examples == count:
        return device
    return replace(device, data=device.data.model_copy(update={"examples": int(count)}))


def _with_memory(device: Device) -> Device:
    """Free memory is at most the memory available to the process, if that is known."""
    profile = device.profile
    if not 0 < profile.memory_bytes < (profile.memory_free_bytes or 0):
        return device
    return replace(device, profile=profile.model_copy(update={"memory_free_bytes": profile.memory_bytes}))
