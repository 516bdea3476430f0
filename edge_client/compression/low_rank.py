"""A change of a weight as the product of two factors (LoRA, Hu et al. 2022, section 4.1).

The weight is a matrix [m, n]: that of a linear layer, or of a convolution whose kernel is one position. The
product of `left` [m, r] and `right` [r, n] has m n numbers, and the factors r (m + n).
"""

import math
import zlib
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from schemas.tensors.arrays import AnyArray, Array, Arrays, ComputedArrays, kind_of, rows_of

Shape = tuple[int, ...]


class Factors(NamedTuple):
    """Two float32 arrays: `left` [m, r], and `right` [r, n] with the further axes of the weight."""

    left: Array
    right: Array

    def rows(self, start: int, stop: int) -> Array:
        """Rows of the product, in the weight's shape."""
        return product(self.left[start:stop], self.right)


def is_matrix(shape: Shape) -> bool:
    """Whether an array of this shape is a matrix, with further axes of length 1 or without."""
    return len(shape) >= 2 and math.prod(shape[2:]) == 1


def factor_shapes(shape: Shape, rank: int) -> tuple[Shape, Shape]:
    """The shapes of the factors of a weight's change of this rank, or of the largest that it can have."""
    held = min(rank, shape[0], math.prod(shape[1:]))
    return (shape[0], held), (held, *shape[1:])


def factor_size(shape: Shape, rank: int) -> int:
    """The numbers of both factors."""
    return sum(map(math.prod, factor_shapes(shape, rank)))


def draw_factors(shape: Shape, rank: int, seed: int, name: str) -> Factors:
    """The factors with which a weight of this shape begins: the left is 0, and so is the product.

    The right one is drawn as a layer of as many inputs begins (He et al. 2015, with PyTorch's slope of the
    square root of 5).
    """
    left, right = factor_shapes(shape, rank)
    bound = right[1] ** -0.5
    drawn = np.random.default_rng((seed, zlib.crc32(name.encode()))).uniform(-bound, bound, right)
    return Factors(np.zeros(left, np.float32), drawn.astype(np.float32))


def product(left: AnyArray, right: AnyArray) -> Array:
    """The product in float32, [m, n] with the further axes of `right`.

    Added up term by term: a product of matrices may differ in the last bit with the number of its rows, and
    these are read in blocks.
    """
    columns = left.astype(np.float32, copy=False).T.reshape(-1, len(left), *[1] * (right.ndim - 1))
    terms = right.astype(np.float32, copy=False)
    with np.errstate(over="ignore", invalid="ignore"):
        total: Array = columns[0] * terms[0]
        made = np.empty_like(total)
        for column, term in zip(columns[1:], terms[1:], strict=True):
            total += np.multiply(column, term, out=made)
    return total


def with_products(arrays: Arrays, factors: Mapping[str, Factors]) -> Arrays:
    """The arrays with the products of these factors in place of those of the same names, made when read."""
    if not factors:
        return arrays

    def rows(name: str, start: int, stop: int) -> AnyArray:
        made = factors.get(name)
        return rows_of(arrays, name, start, stop) if made is None else made.rows(start, stop)

    return ComputedArrays({name: kind_of(arrays, name) for name in arrays}, rows)
