"""Adding clients' rows to their weighted sum, a band at a time.

Of each update codes are read, multiplied by their scales and by its weight, and added: a band is small enough
that all of this happens in the processor's cache. How large bands are changes no bit of the sum.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from edge_client.reach import Places, Reach
from edge_server.strategy.blocks import runs
from edge_server.strategy.deltas import Placed
from edge_server.strategy.updates import GlobalUpdate
from schemas.tensors import AnyArray

BAND_NUMBERS = 64 * 1024


class Adding:
    """Rows `start` to `stop - 1` of a parameter of this shape: their weighted `total`, in doubles."""

    def __init__(self, name: str, start: int, stop: int, shape: tuple[int, ...]) -> None:
        self._name, self._start, self._stop = name, start, stop
        self.total = np.zeros((stop - start, *shape[1:]))
        self._cuts: dict[int, tuple[Reach, Places, Reach]] = {}
        most = max(1, min(self.total.size, max(BAND_NUMBERS, math.prod(shape[1:]))))
        self._numbers, self._products = np.empty(most, np.float32), np.empty(most)

    def add(self, update: GlobalUpdate, weight: float) -> Reach:
        """Add its rows times its weight; returns where in these rows they count."""
        own, counts = self._cut(update.coverage.reach(self._name))
        delta = update.delta
        if isinstance(delta, Placed) and delta.reaches is update.coverage:
            coded = delta.coded(self._name, own, counts)
            if coded is not None:
                self._add(coded.codes, coded.scales, self.total[counts.index], weight)
                return counts
        values, place = update.part(self._name, self._start, self._stop).within(counts).in_runs()
        if values.size:
            self._add(values, None, self.total[place.index], weight)
        return counts

    def _cut(self, reach: Reach) -> tuple[Places, Reach]:
        """What of a reach lies in these rows; many updates have the same."""
        if id(reach) not in self._cuts:
            self._cuts[id(reach)] = (reach, *reach.rows(self._start, self._stop))
        _, own, counts = self._cuts[id(reach)]
        return own, counts

    def _add(
        self, values: AnyArray, scales: AnyArray | None, total: NDArray[np.float64], weight: float
    ) -> None:
        values = values.reshape(total.shape)
        for first, last in runs(total.shape, BAND_NUMBERS):
            some = values[first:last]
            if scales is not None:
                numbers = self._numbers[: some.size].reshape(some.shape)
                np.copyto(numbers, some)
                with np.errstate(over="ignore", invalid="ignore"):
                    numbers *= scales[first:last].reshape(-1, *[1] * (some.ndim - 1))
                some = numbers
            products = self._products[: some.size].reshape(some.shape)
            np.multiply(some, weight, out=products)
            total[first:last] += products
