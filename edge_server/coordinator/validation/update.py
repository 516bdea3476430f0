"""Examines an uploaded update, and converts it for the strategy."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.compression import decoding, quantization, zstd
from edge_client.compression.chain import Chain, make_chain
from edge_client.compression.sparse import Sparse, check_sparse, column_type
from edge_client.pruning.index_sets import expected_shapes
from edge_client.security.secure_aggregation.mask_update import GROUP
from edge_server.coordinator.validation import consistency, contents, data_statistics
from edge_server.strategy.aggregation.updates import ClientUpdate, SummedArrays
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import State
from schemas.errors import PeerError, Reason
from schemas.messages import SiteReceipt, TrainTask, Update
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, Groups, Kind, blocks, kind_of, rows_of
from schemas.tensors.files import FileGroups


@dataclass(frozen=True)
class Examination:
    """The result of examining an update: reason and detail of a refusal, or its groups and magnitudes.

    Masked updates and statistics have no groups that could be compared.
    """

    reason: Reason | None = None
    detail: str = ""
    groups: Groups = field(default_factory=dict)
    sizes: consistency.Magnitudes = field(default_factory=dict)


NOT_ITS_BYTES = Examination(Reason.DIGEST_MISMATCH, "the bytes are not those of the digest")


def examine_update(
    update: Update,
    path: Path,
    task: TrainTask,
    channel_map: ChannelMap,
    rules: Sequence[GroupRule] = (),
    *,
    unpacked: contents.UnpackedCache,
    segments: Sequence[int] = (),
) -> Examination:
    """Examine the update at `path`, whose digest has been verified; safe to call concurrently.

    `rules` are those of the groups that devices may send in addition to the model, `segments` those that a
    masked update must have. A compressed update is left decompressed in `unpacked`.
    """
    try:
        consistency.check_training(update, task)
        if task.masking is not None:
            examine_masked(update, FileGroups(path), task, segments)
            return Examination()
        if task.statistics is not None:
            data_statistics.examine_statistics(update, FileGroups(path), task, task.statistics)
            return Examination()
        groups = _decode_update(path, task, contents.max_answer_bytes(task, channel_map, rules), unpacked)
        sizes = contents.examine(update, groups, task, channel_map, rules)
        # Opened again: the examined groups may be in memory that the next examination reuses.
        return Examination(groups=ExaminedGroups(path, unpacked), sizes=sizes)
    except PeerError as error:
        return Examination(Reason(error.reason), str(error))


def _decode_update(path: Path, task: TrainTask, limit: int, unpacked: contents.UnpackedCache) -> Groups:
    """The groups of an update that is encoded as its task asks; raises `PeerError` for any other."""
    chain = make_chain(task.uplink)
    if zstd.is_compressed(path) != (chain.pack is not None):
        raise PeerError("the update is not packed as its task asks")
    encoded = unpacked.transient_groups(path, limit=limit)
    len(encoded)  # reads the header: a file that is not a blob of groups is refused first
    check_encoding(encoded, chain, task)
    return _with_model(decoding.decode_groups(encoded))


def _with_model(groups: Groups) -> Groups:
    """A device that only scores channels sends no parameters, hence no group `model`: add an empty one."""
    return groups if decoding.MODEL in groups else {decoding.MODEL: {}, **groups}


class ExaminedGroups(Mapping[str, Arrays]):
    """The groups of an update at `path` that has been examined; the file is opened on first access."""

    def __init__(self, path: Path, unpacked: contents.UnpackedCache) -> None:
        self._path, self._unpacked = path, unpacked

    @cached_property
    def _groups(self) -> Groups:
        return _with_model(decoding.decode_groups(self._unpacked.groups(self._path)))

    def __getitem__(self, group: str) -> Arrays:
        return self._groups[group]

    def __iter__(self) -> Iterator[str]:
        return iter(self._groups)

    def __len__(self) -> int:
        return len(self._groups)


def examine_site_update(
    update: Update,
    receipt: SiteReceipt,
    path: Path | None,
    task: TrainTask,
    channel_map: ChannelMap,
    rules: Sequence[GroupRule] = (),
) -> Examination:
    """Examine an update that lies at a site by its receipt; at `path` are its other groups, if it has any."""
    if receipt.reason is not None:
        return Examination(receipt.reason, receipt.detail or f"refused at {receipt.site}")
    try:
        consistency.check_training(update, task)
        if task.masking is not None or task.statistics is not None:
            raise consistency.wrong_shape("answers to this task are not summed at sites")
        groups = _with_model(FileGroups(path) if path is not None else {})
        sizes = contents.examine_receipt(update, receipt, groups, task, channel_map, rules)
        return Examination(groups=groups, sizes=sizes)
    except PeerError as error:
        return Examination(Reason(error.reason), str(error))


def known_clients(state: State) -> list[Client]:
    return [Client(name, *about) for name, about in sorted(state.clients.items())]


def is_summed(update: Update) -> bool:
    """Whether the update's model is part of its site's sum; a device that only measures sends none of it."""
    return update.receipt is not None and update.receipt.parameters != ()


def accepted_update(
    update: Update,
    blob_path: Callable[[str], Path],
    channel_map: ChannelMap,
    *,
    unpacked: contents.UnpackedCache,
    staleness: int,
    ratio: float | None,
) -> ClientUpdate:
    """As `client_update`; with a receipt the model is part of a site's sum, and the blob has other groups."""
    path = None if update.sent_blob is None else blob_path(update.sent_blob.digest)
    if update.receipt is None:
        assert path is not None
        return client_update(update, path, unpacked=unpacked, staleness=staleness, ratio=ratio)
    shapes, known = expected_shapes(update.spec, channel_map), update.receipt.parameters
    kinds = {name: (decoding.FLOAT, shapes[name]) for name in (shapes if known is None else known)}
    others = FileGroups(path) if path is not None else dict[str, Arrays]()
    groups = {**{name: others[name] for name in others}, decoding.MODEL: SummedArrays(kinds) if kinds else {}}
    measured = _metrics_of(update, staleness, ratio)
    return ClientUpdate(update.device, update.spec, groups, update.metrics.examples, measured)


def client_update(
    update: Update, path: Path, *, unpacked: contents.UnpackedCache, staleness: int, ratio: float | None
) -> ClientUpdate:
    """The examined update at `path` with its metrics; its arrays are read from disk on access.

    `ratio` is that of its task, None if it is not known.
    """
    groups = ExaminedGroups(path, unpacked)
    measured = _metrics_of(update, staleness, ratio)
    return ClientUpdate(update.device, update.spec, groups, update.metrics.examples, measured)


def _metrics_of(update: Update, staleness: int, ratio: float | None) -> dict[str, Any]:
    measured = {**update.metrics.model_dump(exclude_none=True), "staleness": staleness}
    return measured if ratio is None else {**measured, "ratio": ratio}


MAX_AXES = 8


def check_encoding(groups: Groups, chain: Chain, task: TrainTask | None = None) -> None:
    """Raise `PeerError` unless `groups` are as `chain` encodes them, and can be decoded.

    Changes are factors where the `task` asks for them, and nowhere else.
    """
    _check_factors(groups, chain, task)
    model = groups.get(decoding.MODEL, {})
    shapes = {name: _shape(groups, name, chain) for name in model}
    coded = {name for name, shape in shapes.items() if decoding.is_coded(shape)}
    wanted = dict.fromkeys(chain.parts, coded) if coded else {}
    found = {part: set(groups[part]) for part in decoding.PARTS if part in groups}
    if found != wanted:
        raise consistency.wrong_shape(
            f"expected the parts {sorted(wanted)}, got {sorted(found)} or others of their arrays"
        )
    for name in sorted(coded):
        if chain.sparsifier is not None:
            _check_sparse(groups, name, shapes[name], chain)
        if chain.number is not None and chain.number.scaled:
            _expect(name, kind_of(groups[decoding.SCALES], name), (decoding.SCALE_TYPE, (shapes[name][0],)))
            _check_scales(groups, name)
        if isinstance(chain.number, quantization.Int8):
            levels, shared = chain.number.levels, chain.digits is not None
            bounds = (0, quantization.largest_byte(levels)) if shared else (-levels, levels)
            _check_codes(groups, name, levels, bounds)


def _check_factors(groups: Groups, chain: Chain, task: TrainTask | None) -> None:
    """Check that exactly the arrays that should be factors are, of the rank that was asked for at most."""
    sides = [decoding.groups_of_factor(groups, side) for side in (decoding.LEFT, decoding.RIGHT)]
    left, right = (side.get(decoding.MODEL, {}) for side in sides)
    wanted = frozenset[str]() if task is None else task.factor_names
    whole, own = groups.get(decoding.MODEL, {}), {decoding.MODEL, *chain.of_factors.parts}
    stray = [name for side in sides for name in side if name not in own]
    if left.keys() != right.keys() or not left.keys() <= wanted or whole.keys() & wanted or stray:
        raise consistency.wrong_shape(
            f"expected factors of {sorted(wanted)[:3]} alone, got {sorted({*left, *right})[:3]}"
        )
    for side in sides:
        if side:
            check_encoding(side, chain.of_factors)
    most = task.adapters.rank if task is not None and task.adapters is not None else 0
    for name in left:
        terms, columns = (decoding.Decoded(side).kind(name)[1] for side in sides)
        if len(terms) != 2 or not 2 <= len(columns) <= MAX_AXES or terms[0] != columns[0]:
            raise consistency.wrong_shape(f"'{name}' has factors of the shapes {terms} and {columns}")
        if not 1 <= terms[0] <= most:
            raise consistency.wrong_shape(f"'{name}' has rank {terms[0]}, at most {most} was asked for")


def _shape(groups: Groups, name: str, chain: Chain) -> tuple[int, ...]:
    """The parameter's shape; raises `PeerError` if its codes have another type."""
    dtype, shape = kind_of(groups[decoding.MODEL], name)
    if name in groups.get(decoding.DIGITS, {}):
        return _shape_of_digits(groups, name, chain)
    if name in groups.get(decoding.SHAPES, {}):
        _check_axes(groups, decoding.SHAPES, name)
        shape = decoding.shape_of(groups[decoding.SHAPES][name])
    coded = decoding.is_coded(shape) and chain.number is not None
    expected = chain.number.dtype if coded and chain.number is not None else decoding.FLOAT
    if dtype != expected:
        raise consistency.wrong_shape(f"'{name}': expected {expected}, got {dtype}")
    return shape


def _shape_of_digits(groups: Groups, name: str, chain: Chain) -> tuple[int, ...]:
    """The shape of a parameter with several codes per byte; its levels must be those of the chain."""
    _check_axes(groups, decoding.DIGITS, name)
    levels, shape = decoding.digits_of(groups[decoding.DIGITS][name])
    if levels != chain.digits or not decoding.is_coded(shape):
        raise consistency.wrong_shape(
            f"'{name}' has codes of {levels} levels and of the shape {shape} in shared bytes"
        )
    held = (quantization.BYTE, (shape[0], quantization.row_bytes(math.prod(shape[1:]), levels)))
    _expect(name, kind_of(groups[decoding.MODEL], name), held)
    return shape


def _check_axes(groups: Groups, part: str, name: str) -> None:
    dtype, axes = kind_of(groups[part], name)
    if dtype != decoding.SHAPE_TYPE or len(axes) != 1 or not 0 < axes[0] <= MAX_AXES:
        raise consistency.wrong_shape(f"'{name}' has no shape, but {dtype} {axes}")


def _check_sparse(groups: Groups, name: str, shape: tuple[int, ...], chain: Chain) -> None:
    """Check that each row's numbers are counted, in order and no more than allowed."""
    assert chain.sparsifier is not None
    (count, *_), most = (
        kind_of(groups[decoding.MODEL], name)[1] or (0,),
        chain.sparsifier.count(math.prod(shape)),
    )
    if count > most:
        raise consistency.wrong_shape(f"'{name}' has {count} numbers, at most {most} are chosen")
    _expect(name, kind_of(groups[decoding.MODEL], name), (kind_of(groups[decoding.MODEL], name)[0], (count,)))
    _expect(name, kind_of(groups[decoding.COUNTED], name), (decoding.COUNT_TYPE, (shape[0],)))
    _expect(name, kind_of(groups[decoding.COLUMNS], name), (column_type(shape), (count,)))
    parts = (groups[decoding.COUNTED][name], groups[decoding.COLUMNS][name], groups[decoding.MODEL][name])
    check_sparse(name, Sparse(*parts), shape)


def _check_scales(groups: Groups, name: str) -> None:
    scales = groups[decoding.SCALES][name]
    if not np.isfinite(scales).all():
        raise PeerError(f"'{name}' has numbers that are not finite", reason=Reason.NOT_FINITE)
    if (scales < 0).any():
        raise PeerError(f"'{name}' has a step below 0")


def _check_codes(groups: Groups, name: str, levels: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    for start, stop in blocks(kind_of(groups[decoding.MODEL], name)):
        codes = rows_of(groups[decoding.MODEL], name, start, stop)
        if codes.size and (int(codes.max()) > most or int(codes.min()) < least):
            raise consistency.out_of_bounds(f"'{name}' has codes beyond {levels}")


def _expect(name: str, found: Kind, expected: Kind) -> None:
    if found != expected:
        raise consistency.wrong_shape(
            f"'{name}': expected {expected[0]} {expected[1]}, got {found[0]} {found[1]}"
        )


def examine_masked(update: Update, groups: Groups, task: TrainTask, segments: Sequence[int]) -> None:
    """Raise `PeerError` unless `groups` are uint32 vectors for exactly the `segments` that it holds.

    Any masked number looks valid: whether it is finite and within `value-range` once unmasked is up to the
    device.
    """
    assert task.masking is not None
    if update.spec != task.spec:
        raise PeerError("the update is of another sub-model than the task's", reason=Reason.WRONG_SHAPE)
    held = task.masking.segments_of(task.masking.specs.index(task.spec))
    wanted = {str(index): (task.masking.segments[index].size + 1,) for index in segments if index in held}
    if not wanted:
        raise PeerError("an update before the masks are agreed", reason=Reason.STALE_ROUND)
    vectors = groups.get(GROUP, {})
    sent = {name: kind_of(vectors, name) for name in vectors}
    if groups.keys() != {GROUP} or {name: shape for name, (_, shape) in sent.items()} != wanted:
        raise PeerError(f"expected the segments {sorted(wanted)}, masked", reason=Reason.WRONG_SHAPE)
    for name, (dtype, _) in sent.items():
        if dtype != np.uint32:
            raise PeerError(f"segment {name}: expected uint32, got {dtype}", reason=Reason.WRONG_SHAPE)
