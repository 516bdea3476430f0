"""The up-link codecs that a strategy names, applied to updates as a chain."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from edge_client.compression import decoding, quantization
from edge_client.compression.sparse import Sparse, TopK, column_type, to_sparse
from edge_client.compression.zstd import Zstd
from edge_client.system.plugins import Registry
from schemas.base import kebab
from schemas.errors import ConfigError, nearest
from schemas.strategy import Component
from schemas.tensors.arrays import (
    AnyArray,
    Array,
    Arrays,
    ComputedArrays,
    Groups,
    Kind,
    blocks,
    kind_of,
    rows_of,
)
from schemas.tensors.files import write_tensors


@dataclass(frozen=True)
class Delta:
    """Trained minus received: every update is such a difference; the name only states it."""


# In the order in which they may be named: selection, number format, compression.
CODECS: Registry[Callable[..., Any]] = Registry(
    "codec",
    {"delta": Delta, "top-k": TopK, "fp16": quantization.Fp16, "int8": quantization.Int8, "zstd": Zstd},
)


@dataclass(frozen=True)
class Chain:
    """The codecs of a strategy; without any, an update is sent in float32."""

    sparsifier: TopK | None = None
    number: quantization.NumberCodec | None = None
    pack: Zstd | None = None

    @property
    def lossy(self) -> bool:
        return self.sparsifier is not None or self.number is not None

    @property
    def digits(self) -> int | None:
        """The levels of codes that share bytes; None if each number has its own bytes."""
        if self.sparsifier is not None or not isinstance(self.number, quantization.Int8):
            return None
        return self.number.levels if quantization.per_byte(self.number.levels) > 1 else None

    @property
    def parts(self) -> tuple[str, ...]:
        """The groups sent with `model`, with an array for each encoded parameter."""
        scaled = (decoding.SCALES,) if self.number is not None and self.number.scaled else ()
        sharing = (decoding.DIGITS,) if self.digits is not None else ()
        return (
            (*scaled, decoding.SHAPES, decoding.COUNTED, decoding.COLUMNS)
            if self.sparsifier is not None
            else (*scaled, *sharing)
        )

    def encode(self, arrays: Arrays, seed: int | None, residual: Arrays | None = None) -> "Encoded":
        """Encode the group `model`; arrays are computed when they are read.

        Without a `seed`, numbers are rounded to the nearest. `residual` is what earlier rounds left unsent.
        """
        if self.sparsifier is not None:
            return _encode_sparse(self, self.sparsifier, arrays, seed, residual or {})
        groups = in_codes(self.number, arrays, seed)
        return Encoded(groups if self.digits is None else _pack_codes(groups, self.digits))

    @property
    def of_factors(self) -> "Chain":
        """The codecs of factors of low rank, which are small and never sparse."""
        return Chain(number=self.number)

    def write(self, file: BinaryIO, arrays: Mapping[str, AnyArray]) -> str:
        """Write the tensors of a blob; returns its digest."""
        return self.pack.write(file, arrays) if self.pack else write_tensors(file, arrays)

    def most_bytes(self, shape: tuple[int, ...]) -> int:
        """The maximum bytes of a parameter of this shape, including scales and counts."""
        size = math.prod(shape)
        if not self.lossy or not decoding.is_coded(shape):
            return decoding.FLOAT.itemsize * size
        if self.digits is not None:
            held = shape[0] * quantization.row_bytes(size // shape[0], self.digits)
            return (
                held
                + decoding.SCALE_TYPE.itemsize * shape[0]
                + decoding.SHAPE_TYPE.itemsize * (1 + len(shape))
            )
        each = self.number.dtype.itemsize if self.number else decoding.FLOAT.itemsize
        extra = decoding.SCALE_TYPE.itemsize * shape[0] if self.number and self.number.scaled else 0
        if self.sparsifier is not None:
            each, size = each + column_type(shape).itemsize, self.sparsifier.count(size)
            extra += decoding.COUNT_TYPE.itemsize * shape[0] + decoding.SHAPE_TYPE.itemsize * len(shape)
        return each * size + extra


@dataclass(frozen=True, eq=False)
class Encoded:
    """The groups that replace `model`, and the residual to add in the next round if this update counts."""

    groups: Groups
    residual: Arrays = field(default_factory=dict)


def make_chain(named: Iterable[Component]) -> Chain:
    """The chain of these components; raises `ConfigError` for unknown names or options, or a wrong order."""
    made = make_codecs(named, CODECS, "uplink")
    return Chain(made.get("top-k"), made.get("fp16", made.get("int8")), made.get("zstd"))


def make_codecs(
    named: Iterable[Component], codecs: Mapping[str, Callable[..., Any]], key: str
) -> dict[str, Any]:
    """The named codecs of the table `codecs`; raises `ConfigError` as `make_chain`."""
    named, order = list(named), list(codecs)
    made = {component.name: _make(component, codecs, key) for component in named}
    ranks = [order.index(component.name) for component in named]
    if len(made) != len(named):
        raise ConfigError("a codec is named twice", key=key, remedy="name it once")
    if ranks != sorted(ranks):
        fitting = ", ".join(f'"{name}"' for name in order if name in made)
        raise ConfigError(
            "codecs work in the order in which they are named", key=key, remedy=f"write [{fitting}]"
        )
    if {"fp16", "int8"} <= made.keys():
        raise ConfigError(
            "'fp16' and 'int8' both say how a number is written", key=key, remedy="leave one out"
        )
    return made


def in_codes(number: quantization.NumberCodec | None, arrays: Arrays, seed: int | None) -> dict[str, Arrays]:
    """The group `model` with codes instead of numbers, and the scales; computed when read.

    Rows and columns may be sliced like those of the parameters. `seed` as in `Chain.encode`.
    """
    if number is None:
        return {decoding.MODEL: arrays}
    kinds = {name: kind_of(arrays, name) for name in arrays}
    scales = _scales(number, arrays, kinds)
    types = {
        n: (number.dtype if decoding.is_coded(shape) else dtype, shape) for n, (dtype, shape) in kinds.items()
    }
    make = partial(_codes, number, arrays, scales, seed)
    return {decoding.MODEL: ComputedArrays(types, make), **({decoding.SCALES: scales} if scales else {})}


def _make(component: Component, codecs: Mapping[str, Callable[..., Any]], key: str) -> Any:
    codec = codecs.get(component.name)
    if codec is None:
        raise ConfigError(f"unknown codec '{component.name}'{nearest(component.name, codecs)}", key=key)
    options = set(getattr(codec, "__dataclass_fields__", {}))
    for option in component.options.keys() - options:
        hint = nearest(kebab(option), map(kebab, options))
        raise ConfigError(f"codec '{component.name}' has no option '{kebab(option)}'{hint}", key=key)
    try:
        return codec(**component.options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"codec '{component.name}': {error}", key=key) from error


def _pack_codes(groups: Mapping[str, Arrays], levels: int) -> dict[str, Arrays]:
    """The groups with several codes in each byte of `model`."""
    codes = groups[decoding.MODEL]
    kinds = {name: kind_of(codes, name) for name in codes}
    widths = {name: math.prod(shape[1:]) for name, (_, shape) in kinds.items() if decoding.is_coded(shape)}
    held = {
        name: (quantization.BYTE, (kinds[name][1][0], quantization.row_bytes(width, levels)))
        for name, width in widths.items()
    }

    def make(name: str, start: int, stop: int) -> AnyArray:
        if name not in widths:
            return rows_of(codes, name, start, stop)
        made = np.empty((stop - start, held[name][1][1]), quantization.BYTE)
        # In blocks: the float32 numbers of a block fit into the processor's caches.
        for begin, end in blocks((kinds[name][0], (stop - start, widths[name]))):
            rows = rows_of(codes, name, start + begin, start + end)
            made[begin:end] = quantization.pack_codes(rows.reshape(end - begin, widths[name]), levels)
        return made

    described = {name: np.array([levels, *kinds[name][1]], decoding.SHAPE_TYPE) for name in widths}
    packed = {**groups, decoding.MODEL: ComputedArrays({**kinds, **held}, make)}
    return {**packed, **({decoding.DIGITS: described} if described else {})}


def _scales(number: quantization.NumberCodec, arrays: Arrays, kinds: Mapping[str, Kind]) -> dict[str, Array]:
    """The scale of each row of every encoded parameter; empty for codecs without scales."""
    if not isinstance(number, quantization.Int8):
        return {}
    return {
        name: np.concatenate([number.scales(rows_of(arrays, name, *block)) for block in blocks(kind)])
        for name, kind in kinds.items()
        if decoding.is_coded(kind[1])
    }


def _codes(
    number: quantization.NumberCodec,
    arrays: Arrays,
    scales: Arrays,
    seed: int | None,
    name: str,
    start: int,
    stop: int,
) -> AnyArray:
    rows = rows_of(arrays, name, start, stop)
    if not decoding.is_coded(kind_of(arrays, name)[1]):
        return rows
    return _encode_rows(number, name, rows, scales.get(name, _NONE)[start:stop], seed, start)


def _encode_rows(
    number: quantization.NumberCodec, name: str, rows: Array, scales: Array, seed: int | None, start: int
) -> AnyArray:
    if seed is None or not number.scaled:
        return number.encode(rows, scales, _HALF)
    return number.encode(rows, scales, quantization.draw_uniform(seed, name, start, rows.shape))


_NONE, _HALF = np.zeros(0, np.float32), np.array(0.5, np.float32)


def _encode_sparse(
    chain: Chain, sparsifier: TopK, arrays: Arrays, seed: int | None, residual: Arrays
) -> Encoded:
    """Encode the largest numbers of each parameter; the residual is the input minus the decoded result."""
    groups: dict[str, dict[str, AnyArray]] = {decoding.MODEL: {}}
    unsent: dict[str, Array] = {}
    for name in arrays:
        array = arrays[name]
        if not decoding.is_coded(array.shape):
            groups[decoding.MODEL][name] = array
            continue
        whole = array + residual[name] if name in residual else array
        for group, part in _parts(chain.number, name, sparsifier.keep_largest(whole), seed).items():
            groups.setdefault(group, {})[name] = part
        encoded = {group: {name: parts[name]} for group, parts in groups.items() if name in parts}
        # The residual of an infinite number is NaN; an update with such a number never counts.
        with np.errstate(invalid="ignore"):
            unsent[name] = whole - decoding.decode_groups(encoded)[decoding.MODEL][name]
    return Encoded(groups, unsent)


def _parts(
    number: quantization.NumberCodec | None, name: str, sparsified: Array, seed: int | None
) -> dict[str, AnyArray]:
    """The arrays of a sparse parameter by group."""
    scales = number.scales(sparsified) if isinstance(number, quantization.Int8) else None
    codes = sparsified
    if number is not None:
        codes = _encode_rows(number, name, sparsified, _NONE if scales is None else scales, seed, 0)
    sparse: Sparse = to_sparse(codes)
    shape = np.array(sparsified.shape, decoding.SHAPE_TYPE)
    parts = {
        decoding.MODEL: sparse.values,
        decoding.SHAPES: shape,
        decoding.COUNTED: sparse.counts,
        decoding.COLUMNS: sparse.columns,
    }
    return parts if scales is None else {**parts, decoding.SCALES: scales}
