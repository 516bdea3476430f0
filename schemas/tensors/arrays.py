"""Arrays made in blocks of rows, so that a model is never in memory as a whole.

`LazyArrays` is a mapping of names to arrays that also gives types and shapes without making the arrays, and
some rows (along the first axis) without the rest. `schemas.tensors.files.TensorFile` reads them from a file.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

AnyArray = NDArray[Any]
Array = NDArray[np.float32]
Arrays = Mapping[str, Array]
Groups = Mapping[str, Arrays]
Kind = tuple[np.dtype[Any], tuple[int, ...]]  # the type and the shape of an array

BLOCK_NUMBERS = 256 * 1024  # as float32 one megabyte, so that results stay in a processor's caches


class LazyArrays(Mapping[str, AnyArray]):
    """Arrays by name, made on access and not kept."""

    @abstractmethod
    def kind(self, name: str) -> Kind:
        """The type and shape of an array, without making it."""

    @abstractmethod
    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        """Rows `start` to `stop - 1` along the first axis; a scalar is its row 0."""

    def __getitem__(self, name: str) -> AnyArray:
        _, shape = self.kind(name)
        return self.rows(name, 0, shape[0] if shape else 1)

    def __contains__(self, name: object) -> bool:
        try:
            self.kind(name)  # type: ignore[arg-type]
        except KeyError:
            return False
        return True


class KnownArrays(LazyArrays):
    """Arrays whose names, types and shapes are known from the start."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self._kinds = kinds

    def kind(self, name: str) -> Kind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def __len__(self) -> int:
        return len(self._kinds)


class ComputedArrays(KnownArrays):
    """Arrays whose rows are made by a function: `make(name, start, stop)`."""

    def __init__(self, kinds: Mapping[str, Kind], make: Callable[[str, int, int], AnyArray]) -> None:
        super().__init__(kinds)
        self._make = make

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        return self._make(name, start, stop)


class GatheredArrays(ComputedArrays):
    """Arrays of several mappings under new names, lazy if the mapping is.

    `places` gives, by new name, the mapping and the array's name in it.
    """

    def __init__(self, places: Mapping[str, tuple[Mapping[str, AnyArray], str]]) -> None:
        kinds = {name: kind_of(*place) for name, place in places.items()}
        super().__init__(kinds, lambda name, start, stop: rows_of(*places[name], start, stop))


class Prefixed(LazyArrays):
    """The lazy arrays whose names begin with `prefix`, under their names without it."""

    def __init__(self, arrays: LazyArrays, prefix: str) -> None:
        self._arrays, self._prefix = arrays, prefix

    def kind(self, name: str) -> Kind:
        return self._arrays.kind(self._prefix + name)

    def rows(self, name: str, start: int, stop: int) -> AnyArray:
        return self._arrays.rows(self._prefix + name, start, stop)

    def __iter__(self) -> Iterator[str]:
        return (name.removeprefix(self._prefix) for name in self._arrays if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)


def kind_of(arrays: Mapping[str, AnyArray], name: str) -> Kind:
    """The type and shape of an array, without making a lazy one."""
    if isinstance(arrays, LazyArrays):
        return arrays.kind(name)
    return arrays[name].dtype, arrays[name].shape


def rows_of(arrays: Mapping[str, AnyArray], name: str, start: int, stop: int) -> AnyArray:
    """Rows of an array, without making the rest of a lazy one; a scalar is its row 0."""
    if isinstance(arrays, LazyArrays):
        return arrays.rows(name, start, stop)
    array = arrays[name]
    return array[start:stop] if array.ndim else array


def add_changes(arrays: Mapping[str, AnyArray], changes: Mapping[str, AnyArray]) -> LazyArrays:
    """The changed arrays plus their changes, made when read."""

    def rows(name: str, start: int, stop: int) -> AnyArray:
        return np.asarray(rows_of(arrays, name, start, stop) + rows_of(changes, name, start, stop))

    return ComputedArrays({name: kind_of(arrays, name) for name in changes}, rows)


def blocks(kind: Kind, numbers: int = BLOCK_NUMBERS) -> Iterator[tuple[int, int]]:
    """Divide an array into blocks of rows (start, stop) of about `numbers` numbers; a scalar is one block."""
    _, shape = kind
    if not shape:
        yield 0, 1
        return
    step = max(1, numbers // max(1, math.prod(shape[1:])))
    yield from ((start, min(start + step, shape[0])) for start in range(0, shape[0], step))
