"""Add clients' rows to their weighted sum, one block at a time: in doubles, or exactly.

The codes of each update are read, multiplied by their scales and its weight, and added: a block is small
enough for the processor's cache.

*Exact sums.* A product m_k delta_k of a whole number m_k and a float32 is split into multiples of two units,
`COARSE` and `FINE`, and each is added as a whole number. Doubles add whole numbers below 2^53 without
rounding, so neither the order nor the grouping of the updates changes a bit of the sum: parts of it may be
added by several processes, or at several sites. Only the split rounds, by at most `FINE` / 2 per product.
The mean over the clients c that hold a coordinate is thus off by at most (FINE / 2) K_c / M_c, where M_c is
the sum of their m_k, hence by at most `FINE` / 2 = 2^-41 as each counted m_k is at least 1. That is below
2^-20 of the largest change of a parameter unless this is below 2^-21 (5e-7).

Whole numbers stay below 2^53 as long as a round has at most `MOST_UPDATES` updates, weights of at most
`MOST_WEIGHT` together, and no change above 2^20 (the server refuses those above 10^6).
"""

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import AxisIndex, IndexSet
from edge_server.strategy.aggregation.deltas import SubModelDeltas
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.arrays import AnyArray

COARSE, FINE = 2.0**-5, 2.0**-40
"""The units of an exact sum."""
MOST_UPDATES, MOST_WEIGHT = 2**18, 2**28
"""Most updates of an exact sum, and most weight of all of them together."""

Floats = NDArray[np.float64]


class RowAccumulator:
    """Rows `start` to `stop - 1` of a parameter of this shape: their weighted `total`, in doubles."""

    def __init__(self, name: str, start: int, stop: int, shape: tuple[int, ...]) -> None:
        self._name, self._start, self._stop = name, start, stop
        self._sum = np.zeros((stop - start, *shape[1:]))
        self._cuts: dict[int, tuple[IndexSet, AxisIndex, IndexSet]] = {}
        self._numbers, self._products = np.empty(self._sum.size, np.float32), np.empty(self._sum.size)

    @property
    def total(self) -> Floats:
        """The sum of all rows added so far."""
        return self._sum

    def add(self, update: GlobalUpdate, weight: float) -> IndexSet:
        """Add the update's rows times its weight; returns the positions that it covers.

        Of an update that a sum contains already only the positions are wanted.
        """
        own, counts = self._cut(update.coverage.index_set(self._name))
        delta = update.delta
        if update.summed:
            return counts
        if isinstance(delta, SubModelDeltas) and delta.coverage is update.coverage:
            coded = delta.coded(self._name, own, counts)
            if coded is not None:
                self._add(coded.codes, coded.scales, counts, weight)
                return counts
        values, place = update.part(self._name, self._start, self._stop).within(counts).in_runs()
        if values.size:
            self._add(values, None, place, weight)
        return counts

    def _cut(self, reach: IndexSet) -> tuple[AxisIndex, IndexSet]:
        """The part of an index set within these rows, cached because many updates share one."""
        if id(reach) not in self._cuts:
            self._cuts[id(reach)] = (reach, *reach.slice_rows(self._start, self._stop))
        _, own, counts = self._cuts[id(reach)]
        return own, counts

    def _add(self, values: AnyArray, scales: AnyArray | None, place: IndexSet, weight: float) -> None:
        values = values.reshape(place.sizes)
        if scales is not None:
            numbers = self._numbers[: values.size].reshape(values.shape)
            np.copyto(numbers, values)
            with np.errstate(over="ignore", invalid="ignore"):
                numbers *= scales.reshape(-1, *[1] * (values.ndim - 1))
            values = numbers
        products = self._products[: values.size].reshape(values.shape)
        # Converted first: numpy multiplies mixed dtypes more slowly than it converts and multiplies.
        np.copyto(products, values)
        products *= weight
        self._add_products(products, place)

    def _add_products(self, products: Floats, place: IndexSet) -> None:
        total = self._sum[place.index]
        total += products


class ExactAccumulator(RowAccumulator):
    """The same for weights that are whole numbers, in multiples of two units: `coarse` and `fine`."""

    def __init__(self, name: str, start: int, stop: int, shape: tuple[int, ...]) -> None:
        super().__init__(name, start, stop, shape)
        self.coarse, self.fine = self._sum, np.zeros_like(self._sum)
        self._whole = np.empty(self._sum.size)

    @property
    def total(self) -> Floats:
        """The sum of all rows added so far, rounded to doubles once."""
        return joined(self.coarse, self.fine)

    def add_sums(self, coarse: Floats, fine: Floats) -> None:
        """Add the same rows of another exact sum."""
        self.coarse += coarse
        self.fine += fine

    def _add_products(self, products: Floats, place: IndexSet) -> None:
        whole = self._whole[: products.size].reshape(products.shape)
        products *= 1 / COARSE
        np.rint(products, out=whole)
        coarse, fine = self.coarse[place.index], self.fine[place.index]
        coarse += whole
        products -= whole
        products *= COARSE / FINE
        np.rint(products, out=products)
        fine += products


def joined(coarse: Floats, fine: Floats) -> Floats:
    """The doubles that exact sums stand for."""
    return coarse * COARSE + fine * FINE
