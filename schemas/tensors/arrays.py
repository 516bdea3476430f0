"""Arrays that are made a piece at a time, so that a model never has to be in memory whole.

A `LazyArrays` is a mapping of names to arrays like any other, and besides tells types and shapes without
making them, and gives rows (along the first axis) without the rest. `schemas.tensors.files` has those that
lie in a file.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Kind = tuple[np.dtype[Any], tuple[int, ...]]
"""The type and the shape of an array."""

BLOCK_NUMBERS = 256 * 1024
"""So many of an array are read or made at once where a whole one is not asked for.

As float32 a megabyte, whatever type they have: what is made on the way stays in a processor's caches.
"""


class LazyArrays(Mapping[str, AnyArray]):
    """Arrays by name, made when they are asked for and not kept."""

    @abstractmethod
    def kind(self, name: str) -> Kind:
        """The type and shape of an array, without making it."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Rows `start` to `stop - 1` along the first axis; of a scalar, which has none, (0, 1) is all."""

    def __getitem__(self, name: str) -> AnyArray:
        _, shape = self.kind(name)
        return self.rows(name, 0, shape[0] if shape else 1)

    def __contains__(self, name: object) -> bool:
        """Told without making the array."""
        try:
            self.kind(name)  # type: ignore[arg-type]
        except KeyError:
            return False
        return True


class KnownArrays(LazyArrays):
    """Arrays whose kinds, and so whose names too, are known from the start."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds

    def kind(self, name: str) -> Kind:
        """As it was said."""
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


class ComputedArrays(KnownArrays):
    """Arrays of known kinds, whose rows a function makes: `make(name, start, stop)`."""

    def __init__(self, kinds: Mapping[str, Kind], make: Callable[[str, int, int], AnyArray]) -> None:
        super().__init__(kinds)
        self._make = make

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Made now."""
        return self._make(name, start, stop)


class GatheredArrays(ComputedArrays):
    """Arrays of several mappings under new names; lazy where they are.

    `places` has by its new name of which mapping each is, and how it is called there.
    """

    def __init__(self, places: Mapping[str, tuple[Mapping[str, AnyArray], str]]) -> None:
        kinds = {name: kind_of(*place) for name, place in places.items()}
        super().__init__(kinds, lambda name, start, stop: rows_of(*places[name], start, stop))


class Prefixed(LazyArrays):
    """Those of some lazy arrays whose names begin with `prefix`, without it."""

    def __init__(self, arrays: LazyArrays, prefix: str) -> None:
        self._arrays, self._prefix = arrays, prefix

    def kind(self, name: str) -> Kind:
        """As the whole says."""
        return self._arrays.kind(self._prefix + name)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """As the whole gives them."""
        return self._arrays.rows(self._prefix + name, start, stop)

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def kind_of(arrays: Mapping[str, AnyArray], name: str) -> Kind:
    """The type and shape of an array, without making one that is lazy."""
    if isinstance(arrays, LazyArrays):
        return arrays.kind(name)
    return arrays[name].dtype, arrays[name].shape


def rows_of(arrays: Mapping[str, AnyArray], name: str, start: int, stop: int) -> AnyArray:
    """Rows of an array, without making the rest of one that is lazy; a scalar's (0, 1) is all of it."""
    if isinstance(arrays, LazyArrays):
        return arrays.rows(name, start, stop)
    array = arrays[name]
    return array[start:stop] if array.ndim else array


def blocks(kind: Kind, numbers: int = BLOCK_NUMBERS) -> Iterator[tuple[int, int]]:
    """Runs of rows (start, stop) of about so many numbers each that make up an array; a scalar is one."""
    _, shape = kind
    if not shape:
        yield 0, 1
        return
    step = max(1, numbers // max(1, math.prod(shape[1:])))
    yield from ((start, min(start + step, shape[0])) for start in range(0, shape[0], step))
