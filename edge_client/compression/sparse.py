"""The largest numbers of a parameter in a compressed sparse row format (CSR).

A parameter of shape (R, ...) has R rows: the number of values per row [R], their columns [N], each as the
distance from the previous one in its row (the first from 0), and the values [N].
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from schemas.errors import PeerError
from schemas.tensors.arrays import AnyArray, Array

COUNTS = np.dtype("<u4")


@dataclass(frozen=True)
class TopK:
    """The `share` of each parameter's numbers with the largest magnitudes.

    Error feedback: the residual is added to the next update (Stich et al. 2018, Sparsified SGD with Memory).
    """

    share: float = 0.05

    def __post_init__(self) -> None:
        if isinstance(self.share, bool) or not 0 < self.share <= 1:
            raise ValueError(f"share is above 0 and at most 1, not {self.share}")

    def count(self, size: int) -> int:
        """The maximum number of values sent of `size`."""
        return min(size, math.ceil(self.share * size))

    def keep_largest(self, array: Array) -> Array:
        """The array with all but its largest numbers set to 0; of equal numbers the first are kept."""
        kept = self.count(array.size)
        flat = array.reshape(-1)
        # Sorting all numbers would take longer than training a small network.
        size = np.abs(flat)
        least = np.partition(size, array.size - kept)[array.size - kept] if kept else np.inf
        chosen = size > least
        equal = np.flatnonzero(size == least)
        chosen[equal[: kept - int(chosen.sum())]] = True
        # Keep NaN, so that validation sees it.
        chosen |= np.isnan(flat)
        return np.where(chosen, flat, np.float32(0)).reshape(array.shape)


@dataclass(frozen=True, eq=False)
class Sparse:
    """The non-zero numbers of a parameter."""

    counts: AnyArray
    columns: AnyArray
    values: AnyArray


def column_type(shape: tuple[int, ...]) -> np.dtype[np.unsignedinteger]:
    """The smallest unsigned type for the columns of a parameter of this shape."""
    return np.dtype(np.min_scalar_type(max(0, math.prod(shape[1:]) - 1))).newbyteorder("<")


def to_sparse(array: AnyArray) -> Sparse:
    """The non-zero numbers of a parameter of at least two axes."""
    rows = array.reshape(len(array), -1)
    row, column = np.nonzero(rows)
    counts = np.bincount(row, minlength=len(rows))
    steps = np.diff(column, prepend=0)
    first = _first(counts)
    steps[first] = column[first]
    return Sparse(counts.astype(COUNTS), steps.astype(column_type(array.shape)), rows[row, column])


def to_dense(sparse: Sparse, shape: tuple[int, ...]) -> AnyArray:
    dense = np.zeros((shape[0], math.prod(shape[1:])), sparse.values.dtype)
    row = np.repeat(np.arange(shape[0]), sparse.counts)
    dense[row, columns_of(sparse)] = sparse.values
    return dense.reshape(shape)


def columns_of(sparse: Sparse) -> NDArray[np.int64]:
    """The column of each number in its row [N]."""
    passed = np.cumsum(sparse.columns, dtype=np.int64)
    first = _first(sparse.counts)
    before = passed[first] - sparse.columns[first].astype(np.int64)
    return passed - np.repeat(before, sparse.counts[sparse.counts > 0])


def check_sparse(name: str, sparse: Sparse, shape: tuple[int, ...]) -> None:
    """Raise `PeerError` unless the counts match and the columns ascend and are in range."""
    if int(sparse.counts.sum(dtype=np.uint64)) != len(sparse.columns):
        raise PeerError(f"'{name}' has {len(sparse.columns)} columns, its rows count others")
    later = np.ones(len(sparse.columns), bool)
    later[_first(sparse.counts)] = False
    if (sparse.columns[later] == 0).any():
        raise PeerError(f"'{name}' has a column twice")
    if len(sparse.columns) and int(columns_of(sparse).max()) >= math.prod(shape[1:]):
        raise PeerError(f"'{name}' has columns beyond its rows of {math.prod(shape[1:])}")


def _first(counts: AnyArray) -> NDArray[np.int64]:
    """The index of the first number of each row that is not empty."""
    ends = np.cumsum(counts, dtype=np.int64)
    return (ends - counts)[counts > 0]
