"""Checks before decoding that an update is encoded by the task's codecs."""

import math

import numpy as np

from edge_client.compression.chain import Chain
from edge_client.compression.decoding import (
    COLUMNS,
    COUNT_TYPE,
    COUNTED,
    DIGITS,
    FLOAT,
    MODEL,
    PARTS,
    SCALE_TYPE,
    SCALES,
    SHAPE_TYPE,
    SHAPES,
    digits_of,
    is_coded,
    shape_of,
)
from edge_client.compression.quantization import BYTE, Int8, largest_byte, row_bytes
from edge_client.compression.sparse import Sparse, check_sparse, column_type
from schemas.errors import PeerError
from schemas.tensors.arrays import Kind, blocks, kind_of, rows_of
from schemas.tensors.blobs import Groups
from schemas.values import Reason

MAX_AXES = 8


def check_encoding(groups: Groups, chain: Chain) -> None:
    """Raise `PeerError` unless `groups` are as `chain` encodes them, and can be decoded."""
    model = groups.get(MODEL, {})
    shapes = {name: _shape(groups, name, chain) for name in model}
    coded = {name for name, shape in shapes.items() if is_coded(shape)}
    wanted = dict.fromkeys(chain.parts, coded) if coded else {}
    found = {part: set(groups[part]) for part in PARTS if part in groups}
    if found != wanted:
        raise _wrong(f"expected the parts {sorted(wanted)}, got {sorted(found)} or others of their arrays")
    for name in sorted(coded):
        if chain.sparsifier is not None:
            _check_sparse(groups, name, shapes[name], chain)
        if chain.number is not None and chain.number.scaled:
            _expect(name, kind_of(groups[SCALES], name), (SCALE_TYPE, (shapes[name][0],)))
            _check_scales(groups, name)
        if isinstance(chain.number, Int8):
            levels, shared = chain.number.levels, chain.digits is not None
            bounds = (0, largest_byte(levels)) if shared else (-levels, levels)
            _check_codes(groups, name, levels, bounds)


def _shape(groups: Groups, name: str, chain: Chain) -> tuple[int, ...]:
    """The parameter's shape; raises `PeerError` if its codes have another type."""
    dtype, shape = kind_of(groups[MODEL], name)
    if name in groups.get(DIGITS, {}):
        return _shape_of_digits(groups, name, chain)
    if name in groups.get(SHAPES, {}):
        _check_axes(groups, SHAPES, name)
        shape = shape_of(groups[SHAPES][name])
    coded = is_coded(shape) and chain.number is not None
    expected = chain.number.dtype if coded and chain.number is not None else FLOAT
    if dtype != expected:
        raise _wrong(f"'{name}': expected {expected}, got {dtype}")
    return shape


def _shape_of_digits(groups: Groups, name: str, chain: Chain) -> tuple[int, ...]:
    """The shape of a parameter with several codes per byte; its levels must be those of the chain."""
    _check_axes(groups, DIGITS, name)
    levels, shape = digits_of(groups[DIGITS][name])
    if levels != chain.digits or not is_coded(shape):
        raise _wrong(f"'{name}' has codes of {levels} levels and of the shape {shape} in shared bytes")
    held = (BYTE, (shape[0], row_bytes(math.prod(shape[1:]), levels)))
    _expect(name, kind_of(groups[MODEL], name), held)
    return shape


def _check_axes(groups: Groups, part: str, name: str) -> None:
    dtype, axes = kind_of(groups[part], name)
    if dtype != SHAPE_TYPE or len(axes) != 1 or not 0 < axes[0] <= MAX_AXES:
        raise _wrong(f"'{name}' has no shape, but {dtype} {axes}")


def _check_sparse(groups: Groups, name: str, shape: tuple[int, ...], chain: Chain) -> None:
    """Check that each row's numbers are counted, in order and no more than allowed."""
    assert chain.sparsifier is not None
    (count, *_), most = kind_of(groups[MODEL], name)[1] or (0,), chain.sparsifier.count(math.prod(shape))
    if count > most:
        raise _wrong(f"'{name}' has {count} numbers, at most {most} are chosen")
    _expect(name, kind_of(groups[MODEL], name), (kind_of(groups[MODEL], name)[0], (count,)))
    _expect(name, kind_of(groups[COUNTED], name), (COUNT_TYPE, (shape[0],)))
    _expect(name, kind_of(groups[COLUMNS], name), (column_type(shape), (count,)))
    parts = (groups[COUNTED][name], groups[COLUMNS][name], groups[MODEL][name])
    check_sparse(name, Sparse(*parts), shape)


def _check_scales(groups: Groups, name: str) -> None:
    scales = groups[SCALES][name]
    if not np.isfinite(scales).all():
        raise PeerError(f"'{name}' has numbers that are not finite", reason=Reason.NOT_FINITE)
    if (scales < 0).any():
        raise PeerError(f"'{name}' has a step below 0")


def _check_codes(groups: Groups, name: str, levels: int, bounds: tuple[int, int]) -> None:
    least, most = bounds
    for start, stop in blocks(kind_of(groups[MODEL], name)):
        codes = rows_of(groups[MODEL], name, start, stop)
        if codes.size and (int(codes.max()) > most or int(codes.min()) < least):
            raise PeerError(f"'{name}' has codes beyond {levels}", reason=Reason.OUT_OF_BOUNDS)


def _expect(name: str, found: Kind, expected: Kind) -> None:
    if found != expected:
        raise _wrong(f"'{name}': expected {expected[0]} {expected[1]}, got {found[0]} {found[1]}")


def _wrong(detail: str) -> PeerError:
    return PeerError(detail, reason=Reason.WRONG_SHAPE)
