"""Checks the contents of an update: its groups, types and shapes; finite numbers within bounds.

The round machine checks the sender, the selection and repetitions.
"""

import io
import math
import os
import shutil
import threading
from collections.abc import Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.compression.chain import make_chain
from edge_client.compression.low_rank import factor_shapes
from edge_client.compression.zstd import is_compressed, unpack
from edge_client.pruning.channel_selection import kept_count
from edge_client.pruning.index_sets import check_spec, expected_shapes
from edge_client.storage.file_recycling import SUFFIX, Spares
from edge_server.coordinator.validation import consistency, data_statistics
from edge_server.strategy.groups.rule import MAX_ROWS, GroupRule, Shape
from schemas.errors import InvariantError, PeerError, Reason
from schemas.messages import SiteReceipt, Task, TrainTask, Update, tasks
from schemas.strategy import PersonalPruning
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Groups, kind_of
from schemas.tensors.files import FileGroups

# A cache of decompressed updates, which may be deleted at any time.

IN_MEMORY_BYTES = 4 * 1024 * 1024
"""Smaller updates are examined in memory instead of from their decompressed file."""


class UnpackedCache:
    """A folder of decompressed files, named by the digest of the compressed one.

    `anew` deletes those of an earlier process: they were not synced, so a power cut may have torn them.
    """

    def __init__(self, folder: Path, *, anew: bool = False) -> None:
        self.folder, self._own = folder, threading.local()
        if anew:
            self.remove()
        self._spares = Spares(folder)

    def groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The encoded groups of an update, read in blocks.

        Raises `PeerError` if the file is damaged, or larger than `limit` bytes when decompressed.
        """
        return FileGroups(self.unpacked_path(path, limit=limit))

    def unpacked_path(self, path: Path, *, limit: int | None = None) -> Path:
        """The decompressed file, or the file itself if it is not compressed; raises as `groups`."""
        if not is_compressed(path):
            return path
        unpacked = self.folder / path.name
        if not unpacked.is_file():
            self.unpack(path, unpacked, limit)
        return unpacked

    def transient_groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """As `groups`, but valid only until this thread's next call: small updates are in memory."""
        if not is_compressed(path):
            return FileGroups(path)
        unpacked = self.folder / path.name
        if unpacked.is_file():
            return FileGroups(unpacked)
        if not hasattr(self._own, "buffer"):
            self._own.buffer = bytearray(IN_MEMORY_BYTES)
        return FileGroups(unpacked, self.unpack(path, unpacked, limit, self._own.buffer))

    def keep_only(self, digests: frozenset[str]) -> None:
        """Forget all other digests; their files are reused for the next decompressed updates."""
        for path in self.folder.glob("*"):
            if path.name not in digests and path.suffix != SUFFIX:
                self._spares.add(path)
        self._spares.turn()

    def remove(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def unpack(
        self, path: Path, unpacked: Path, limit: int | None, through: bytearray | None = None
    ) -> memoryview | None:
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = self.folder / f".{path.name}.{os.getpid()}.{threading.get_ident()}.part"
        try:
            with self._spares.written(temporary, limit or path.stat().st_size) as file:
                found = unpack(path, file, limit=limit, through=through)
            # Complete or absent, but not synced: it may be lost in a power cut.
            temporary.replace(unpacked)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        return found


HELD_BYTES = 32 * 1024 * 1024


class UnpackedInMemory(UnpackedCache):
    """As its base, but small updates are kept in memory, `HELD_BYTES` of them, and no file is written."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._held: dict[str, FileGroups] = {}
        self._bytes, self._buffer = 0, bytearray(IN_MEMORY_BYTES // 4)

    def groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The encoded groups of an update; raises as its base."""
        return self._held[path.name] if path.name in self._held else super().groups(path, limit=limit)

    def transient_groups(self, path: Path, *, limit: int | None = None) -> Groups:
        """The same; valid until `forget`."""
        fits = limit is not None and limit <= min(IN_MEMORY_BYTES, HELD_BYTES - self._bytes)
        if not fits or not is_compressed(path):
            return self.groups(path, limit=limit)
        content = io.BytesIO()
        unpack(path, content, limit=limit, through=self._buffer)
        self._bytes += content.tell()
        self._held[path.name] = found = FileGroups(path, content.getbuffer().toreadonly())
        return found

    def forget(self) -> None:
        """Free the memory."""
        self._held.clear()
        self._bytes = 0


MAX_ABS = 1e6  # Largest change of a weight in one round
HEADER_BYTES = 64 * 1024
BYTES_PER_TENSOR = 256


def max_answer_bytes(task: Task, channel_map: ChannelMap, rules: Sequence[GroupRule] = ()) -> int:
    """Most bytes of an honest answer to `task`: tensors, header, attention scores."""
    if isinstance(task, TrainTask) and task.statistics is not None:
        return HEADER_BYTES + 8 * data_statistics.answer_numbers(task.statistics, task.model)
    shapes = _answer_shapes(_smallest_honest(task, channel_map), task, channel_map, rules)
    chain, held = make_chain(task.uplink), shapes.pop("model")
    factors = _sent_factors(task, held)
    model = [shape for name, shape in held.items() if name not in factors]
    arrays = [
        (_dtype(name, rules).itemsize, shape)
        for name, group in shapes.items()
        if name != "attention"
        for shape in group.values()
    ]
    others = sum(
        item * math.prod(MAX_ROWS if size is None else size for size in shape) for item, shape in arrays
    )
    scores = sum(g.channels * max(1, len(g.layers)) for g in channel_map.groups.values())
    tensors = len(arrays) + (len(model) + 2 * len(factors)) * (1 + len(chain.parts)) + len(channel_map.groups)
    written = sum(chain.most_bytes(tuple(size or 0 for size in shape)) for shape in model)
    written += sum(chain.of_factors.most_bytes(shape) for pair in factors.values() for shape in pair)
    written += others + 4 * scores
    # Incompressible data grows by less than 1/128 when it is compressed.
    return (written + BYTES_PER_TENSOR * tensors) * 129 // 128 + HEADER_BYTES


def _sent_factors(task: Task, shapes: Mapping[str, Shape]) -> dict[str, list[tuple[int, ...]]]:
    """The shapes of the factors that an answer holds in place of arrays of these shapes."""
    if not isinstance(task, TrainTask) or task.adapters is None:
        return {}
    found = {}
    for name in task.factor_names & shapes.keys():
        left, right = factor_shapes(tuple(size or 0 for size in shapes[name]), task.adapters.rank)
        found[name] = [left[::-1], right]
    return found


def examine(
    update: Update, groups: Groups, task: TrainTask, channel_map: ChannelMap, rules: Sequence[GroupRule] = ()
) -> consistency.Magnitudes:
    """Measure the update's numbers; raises `PeerError` unless `groups` is a valid answer to `task`.

    `rules` are those of the groups that devices may send in addition to the model.
    """
    _check_spec(update.spec, task, channel_map)
    shapes = _answer_shapes(update.spec, task, channel_map, rules)
    _check_names(groups, task, shapes.keys(), scored=update.metrics.examples > 0)
    # Each check covers all arrays before the next begins, so that the first failing check is the reason.
    for group, arrays in groups.items():
        _check_shapes(group, arrays, shapes[group], _dtype(group, rules))
    sizes = consistency.magnitudes_of(groups)
    _check_numbers(sizes, rules)
    consistency.check_group_values(update, groups, rules)
    return sizes


def examine_receipt(
    update: Update,
    receipt: SiteReceipt,
    groups: Groups,
    task: TrainTask,
    channel_map: ChannelMap,
    rules: Sequence[GroupRule],
) -> consistency.Magnitudes:
    """As `examine`, for an update whose model lies at a site: `groups` are what the site has sent of it.

    Returns the magnitudes of the groups besides the model.
    """
    _check_spec(update.spec, task, channel_map)
    shapes = _answer_shapes(update.spec, task, channel_map, rules)
    model = shapes["model"]
    names = channel_map.parameters.keys() if receipt.parameters is None else set(receipt.parameters)
    if names != model.keys():
        raise consistency.wrong_shape("the update is not of the parameters that were asked for")
    others = {name: arrays for name, arrays in groups.items() if name != "model"}
    _check_names({"model": {}, **others}, task, shapes.keys(), scored=update.metrics.examples > 0)
    shapes["model"] = {name: shape for name, shape in model.items() if consistency.is_variance(name)}
    for group, arrays in {"model": {}, **groups}.items():
        _check_shapes(group, arrays, shapes[group], _dtype(group, rules))
    sizes = consistency.magnitudes_of(groups)
    _check_numbers(sizes, rules)
    consistency.check_group_values(update, others, rules)
    return {name: found for name, found in sizes.items() if name != "model"}


def _answer_shapes(
    spec: SubModelSpec, task: Task, channel_map: ChannelMap, rules: Sequence[GroupRule]
) -> dict[str, Mapping[str, Shape]]:
    """The arrays that an answer in the coordinates of `spec` may have, by group."""
    model: Mapping[str, Shape] = expected_shapes(spec, channel_map)
    trained = model if task.trained is None else {name: model[name] for name in task.trained}
    shapes = {
        rule.name: rule.shapes(trained if rule.measured else model, task.model)
        for rule in rules
        if rule.uplink
    }
    if task.personal is not None:
        shapes["attention"] = _score_shapes(task.personal, channel_map)
    if task.returned is not None:
        names = frozenset(task.returned)
        model = {name: shape for name, shape in model.items() if tasks.is_returned(name, names)}
    return {**shapes, "model": model}


def _smallest_honest(task: Task, channel_map: ChannelMap) -> SubModelSpec:
    """A spec with as many channels as the answer may have."""
    if task.personal is None:
        return task.spec
    return SubModelSpec(kept=dict(_counts(task.personal, channel_map)))


def _counts(personal: PersonalPruning, channel_map: ChannelMap) -> Mapping[str, int]:
    groups = channel_map.groups
    return {
        name: kept_count(groups[name].channels, ratio, groups[name].multiple)
        for name, ratio in personal.ratios.items()
    }


def _check_spec(spec: SubModelSpec, task: TrainTask, channel_map: ChannelMap) -> None:
    if task.personal is None:
        if spec != task.spec:
            raise consistency.wrong_shape("the update is of another sub-model than the task's")
        return
    expected = _counts(task.personal, channel_map)
    kept = {name: spec.count(name, channel_map.groups[name].channels) for name in expected}
    if kept != expected or not spec.kept.keys() <= expected.keys() or not spec.fits(channel_map):
        raise consistency.wrong_shape(f"expected {expected} channels, got {kept}")
    try:
        check_spec(spec, channel_map)
    except InvariantError as error:
        raise consistency.wrong_shape(str(error)) from error


def _check_names(groups: Groups, task: TrainTask, allowed: Set[str], *, scored: bool) -> None:
    """A device that chose its own channels sends its scores, unless it has no examples."""
    needed = {"model", "attention"} if task.personal is not None and scored else {"model"}
    if not needed <= groups.keys() <= allowed:
        raise consistency.wrong_shape(f"expected groups {sorted(needed)}, got {sorted(groups)[:5]}")


def _score_shapes(personal: PersonalPruning, channel_map: ChannelMap) -> Mapping[str, Shape]:
    """One score per output channel of every layer that the task measures attention behind."""
    layers = {layer for name in personal.ratios for layer in channel_map.groups[name].layers}
    return {layer: channel_map.parameters[f"{layer}.weight"].shape[:1] for layer in layers}


def _dtype(group: str, rules: Sequence[GroupRule]) -> np.dtype[Any]:
    return next((rule.dtype for rule in rules if rule.name == group), np.dtype(np.float32))


def _check_shapes(
    group: str, arrays: Mapping[str, Array], shapes: Mapping[str, Shape], wanted: np.dtype[Any]
) -> None:
    if arrays.keys() != shapes.keys():
        differing = sorted(arrays.keys() ^ shapes.keys())[:3]
        raise consistency.wrong_shape(f"group '{group}' is off in {differing}")
    for name in arrays:
        dtype, shape = kind_of(arrays, name)
        if dtype != wanted or not _fits(shape, shapes[name]):
            raise consistency.wrong_shape(
                f"'{name}': expected {wanted} {tuple(shapes[name])}, got {dtype} {shape}"
            )


def _check_numbers(sizes: consistency.Magnitudes, rules: Sequence[GroupRule]) -> None:
    """All arrays are checked for finite numbers before any is checked for its bound."""
    bounds = {rule.name: rule.max_abs for rule in rules if rule.max_abs is not None}
    named = [
        (name, size.largest, bounds.get(group, MAX_ABS))
        for group, arrays in sizes.items()
        for name, size in arrays.items()
    ]
    for name, largest, _ in named:
        if not math.isfinite(largest):
            raise PeerError(f"'{name}' has numbers that are not finite", reason=Reason.NOT_FINITE)
    for name, largest, bound in named:
        if largest > bound:
            raise consistency.out_of_bounds(f"'{name}' exceeds {bound:g}")


def _fits(shape: Sequence[int], expected: Shape) -> bool:
    return len(shape) == len(expected) and all(
        1 <= size <= MAX_ROWS if wanted is None else size == wanted
        for size, wanted in zip(shape, expected, strict=True)
    )
