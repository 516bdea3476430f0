"""The update firewall: what an update must be before it may count. Whatever it is not has a reason code.

Who sent it, whether it was selected and whether it has counted already is the round machine's to check;
here it is the content: shapes and types of the device's own sub-model, finite and within bounds.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from edge_client.pruning import kept_count
from edge_client.slicing import check, expected_shapes
from schemas.blobs import Array, Groups
from schemas.errors import InvariantError, PeerError
from schemas.messages import Task, Update
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.values import PersonalPruning, Reason

MAX_ABS = 1e6
"""No weight moves that far in a round that is worth counting."""
HEADER_BYTES = 64 * 1024
BYTES_PER_TENSOR = 256


def max_answer_bytes(task: Task, channel_map: ChannelMap) -> int:
    """The most bytes that an honest answer to `task` has: its tensors, their header, attention scores."""
    spec = _smallest_honest(task, channel_map)
    shapes = expected_shapes(spec, channel_map)
    numbers = sum(int(np.prod(shape)) for shape in shapes.values())
    scores = sum(g.channels * max(1, len(g.layers)) for g in channel_map.groups.values())
    return 4 * (numbers + scores) + BYTES_PER_TENSOR * (len(shapes) + len(channel_map.groups)) + HEADER_BYTES


def examine(update: Update, groups: Groups, task: Task, channel_map: ChannelMap) -> None:
    """Raise `PeerError` with its reason unless `groups` is an honest answer to `task`."""
    _check_spec(update.spec, task, channel_map)
    _check_names(groups, task, scored=update.metrics.examples > 0)
    shapes = expected_shapes(update.spec, channel_map)
    _check_arrays("model", groups["model"], shapes)
    if "attention" in groups:
        _check_arrays("attention", groups["attention"], _score_shapes(task, channel_map))


def _smallest_honest(task: Task, channel_map: ChannelMap) -> SubModelSpec:
    """A spec with as many channels as the answer's may have."""
    if task.personal is None:
        return task.spec
    return SubModelSpec(kept=dict(_counts(task.personal, channel_map)))


def _counts(personal: PersonalPruning, channel_map: ChannelMap) -> Mapping[str, int]:
    groups = channel_map.groups
    return {
        name: kept_count(groups[name].channels, ratio, groups[name].multiple)
        for name, ratio in personal.ratios.items()
    }


def _check_spec(spec: SubModelSpec, task: Task, channel_map: ChannelMap) -> None:
    if task.personal is None:
        if spec != task.spec:
            raise PeerError("the update is of another sub-model than the task's", reason=Reason.WRONG_SHAPE)
        return
    expected = _counts(task.personal, channel_map)
    kept = {name: spec.count(name, channel_map.groups[name].channels) for name in expected}
    if kept != expected or not spec.kept.keys() <= expected.keys() or not spec.fits(channel_map):
        raise PeerError(f"expected {expected} channels, got {kept}", reason=Reason.WRONG_SHAPE)
    try:
        check(spec, channel_map)
    except InvariantError as error:
        raise PeerError(str(error), reason=Reason.WRONG_SHAPE) from error


def _check_names(groups: Groups, task: Task, *, scored: bool) -> None:
    """A client that chose its own channels says by which scores; without examples it has none."""
    personal = task.personal is not None
    needed = {"model", "attention"} if personal and scored else {"model"}
    allowed = {"model", "attention"} if personal else {"model"}
    if not needed <= groups.keys() <= allowed:
        raise PeerError(
            f"expected groups {sorted(needed)}, got {sorted(groups)[:5]}", reason=Reason.WRONG_SHAPE
        )


def _score_shapes(task: Task, channel_map: ChannelMap) -> dict[str, tuple[int, ...]]:
    """One score per output channel of every layer that the task measures attention behind."""
    assert task.personal is not None
    layers = {layer for name in task.personal.ratios for layer in channel_map.groups[name].layers}
    return {layer: channel_map.parameters[f"{layer}.weight"].shape[:1] for layer in layers}


def _check_arrays(group: str, arrays: Mapping[str, Array], shapes: Mapping[str, tuple[int, ...]]) -> None:
    if arrays.keys() != shapes.keys():
        odd = sorted(arrays.keys() ^ shapes.keys())[:3]
        raise PeerError(f"group '{group}' is off in {odd}", reason=Reason.WRONG_SHAPE)
    for name, array in arrays.items():
        if array.dtype != np.float32 or array.shape != tuple(shapes[name]):
            detail = f"'{name}': expected float32 {tuple(shapes[name])}, got {array.dtype} {array.shape}"
            raise PeerError(detail, reason=Reason.WRONG_SHAPE)
        if not np.isfinite(array).all():
            raise PeerError(f"'{name}' has numbers that are not finite", reason=Reason.NOT_FINITE)
        if array.size and float(np.abs(array).max()) > MAX_ABS:
            raise PeerError(f"'{name}' exceeds {MAX_ABS:g}", reason=Reason.OUT_OF_BOUNDS)
