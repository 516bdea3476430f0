"""Add clients' rows to their weighted sum, one block at a time.

The codes of each update are read, multiplied by their scales and its weight, and added: a block is small
enough for the processor's cache.
"""

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import AxisIndex, IndexSet
from edge_server.strategy.aggregation.deltas import SubModelDeltas
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.arrays import AnyArray


class RowAccumulator:
    """Rows `start` to `stop - 1` of a parameter of this shape: their weighted `total`, in doubles."""

    def __init__(self, name: str, start: int, stop: int, shape: tuple[int, ...]) -> None:
        self._name, self._start, self._stop = name, start, stop
        self.total = np.zeros((stop - start, *shape[1:]))
        self._cuts: dict[int, tuple[IndexSet, AxisIndex, IndexSet]] = {}
        self._numbers, self._products = np.empty(self.total.size, np.float32), np.empty(self.total.size)

    def add(self, update: GlobalUpdate, weight: float) -> IndexSet:
        """Add the update's rows times its weight; returns their positions."""
        own, counts = self._cut(update.coverage.index_set(self._name))
        delta = update.delta
        if isinstance(delta, SubModelDeltas) and delta.coverage is update.coverage:
            coded = delta.coded(self._name, own, counts)
            if coded is not None:
                self._add(coded.codes, coded.scales, self.total[counts.index], weight)
                return counts
        values, place = update.part(self._name, self._start, self._stop).within(counts).in_runs()
        if values.size:
            self._add(values, None, self.total[place.index], weight)
        return counts

    def _cut(self, reach: IndexSet) -> tuple[AxisIndex, IndexSet]:
        """The part of an index set within these rows, cached because many updates share one."""
        if id(reach) not in self._cuts:
            self._cuts[id(reach)] = (reach, *reach.slice_rows(self._start, self._stop))
        _, own, counts = self._cuts[id(reach)]
        return own, counts

    def _add(
        self, values: AnyArray, scales: AnyArray | None, total: NDArray[np.float64], weight: float
    ) -> None:
        values = values.reshape(total.shape)
        if scales is not None:
            numbers = self._numbers[: values.size].reshape(total.shape)
            np.copyto(numbers, values)
            with np.errstate(over="ignore", invalid="ignore"):
                numbers *= scales.reshape(-1, *[1] * (total.ndim - 1))
            values = numbers
        products = self._products[: values.size].reshape(total.shape)
        # Converted first: numpy multiplies mixed dtypes more slowly than it converts and multiplies.
        np.copyto(products, values)
        products *= weight
        total += products
