"""Add clients' rows to their weighted sum, one block at a time: in doubles, or exactly.

The codes of each update are read, multiplied by their scales and its weight, and added: a block is small
enough for the processor's cache.

*Exact sums.* A product m_k delta_k of a whole number m_k and a float32 is rounded to a multiple of `FINE`,
and added as a whole number of these units; what grows large is carried over to whole numbers of the unit
`COARSE`. Doubles add whole numbers below 2^53 without rounding, so neither the order nor the grouping of the
updates changes a bit of the sum: parts of it may be added by several processes, or at several sites. Only a
product is rounded, by at most `FINE` / 2.
The mean over the clients c that hold a coordinate is thus off by at most (FINE / 2) K_c / M_c, where M_c is
the sum of their m_k, hence by at most `FINE` / 2 = 2^-41 as each counted m_k is at least 1. That is below
2^-20 of the largest change of a parameter unless this is below 2^-21 (5e-7).

Whole numbers stay below 2^53 as long as a round has at most `MAX_UPDATES` updates, weights of at most
`MAX_WEIGHT` together, and no change above 2^20 (the server refuses those above 10^6).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.index_sets import AxisIndex, IndexSet
from edge_server.strategy.aggregation.deltas import SubModelDeltas
from edge_server.strategy.aggregation.updates import GlobalUpdate
from schemas.tensors.arrays import AnyArray

COARSE, FINE = 2.0**-5, 2.0**-40  # the units of an exact sum
MAX_UPDATES, MAX_WEIGHT = 2**18, 2**28  # most updates of an exact sum, and of weight of all together
# Most that is added in fine units before it is carried over: below 2^53 of them, with room for rounding.
MAX_FINE = 2.0**12
WHOLE_FROM = FINE * 2.0**23  # a float32 from here on is a multiple of `FINE`: it has 24 binary digits

Floats = NDArray[np.float64]


class Bounds(NamedTuple):
    """What is known of numbers: none is beyond `largest`; `whole` ones are multiples of `FINE`."""

    largest: float
    whole: bool = False


class Scratch:
    """Memory for one update's rows of a block, which accumulators of one thread may share."""

    def __init__(self, size: int) -> None:
        self.numbers, self.products = np.empty(size, np.float32), np.empty(size)


class RowAccumulator:
    """Rows `start` to `stop - 1` of a parameter of this shape: their weighted `total`, in doubles."""

    def __init__(
        self, name: str, start: int, stop: int, shape: tuple[int, ...], scratch: Scratch | None = None
    ) -> None:
        self._name, self._start, self._stop = name, start, stop
        self._sum = np.zeros((stop - start, *shape[1:]))
        self._cuts: dict[int, tuple[IndexSet, AxisIndex, IndexSet]] = {}
        self._scratch = scratch or Scratch(self._sum.size)

    @property
    def total(self) -> Floats:
        return self._sum

    def add(self, update: GlobalUpdate, weight: float) -> IndexSet:
        """Add the update's rows times its weight; returns the positions that it covers.

        Of an update that a sum contains already only the positions are wanted.
        """
        own, counts = self._cut(update.coverage.index_set(self._name))
        delta = update.delta
        if update.is_summed:
            return counts
        if isinstance(delta, SubModelDeltas) and delta.coverage is update.coverage:
            coded = delta.coded_rows(self._name, own, counts)
            if coded is not None:
                self.add_values(coded.codes, coded.scales, counts, weight)
                return counts
        values, place = update.part(self._name, self._start, self._stop).within(counts).in_runs()
        if values.size:
            self.add_values(values, None, place, weight)
        return counts

    def forget_index_sets(self) -> None:
        """Forget the index sets of the updates added so far: those of later ones are others."""
        self._cuts.clear()

    def _cut(self, reach: IndexSet) -> tuple[AxisIndex, IndexSet]:
        """The part of an index set within these rows, cached because many updates share one."""
        if id(reach) not in self._cuts:
            self._cuts[id(reach)] = (reach, *reach.slice_rows(self._start, self._stop))
        _, own, counts = self._cuts[id(reach)]
        return own, counts

    def add_values(self, values: AnyArray, scales: AnyArray | None, place: IndexSet, weight: float) -> None:
        values = values.reshape(place.sizes)
        bounds = self._bounds(values, scales)
        if scales is not None:
            numbers = self._scratch.numbers[: values.size].reshape(values.shape)
            np.copyto(numbers, values)
            with np.errstate(over="ignore", invalid="ignore"):
                numbers *= scales.reshape(-1, *[1] * (values.ndim - 1))
            values = numbers
        products = self._scratch.products[: values.size].reshape(values.shape)
        # Converted first: numpy multiplies mixed dtypes more slowly than it converts and multiplies.
        np.copyto(products, values)
        self._add_products(products, weight, place, bounds)

    def _bounds(self, values: AnyArray, scales: AnyArray | None) -> Bounds:
        return Bounds(0.0)

    def _add_products(self, values: Floats, weight: float, place: IndexSet, bounds: Bounds) -> None:
        """Add values within these bounds times the weight; the values may be changed."""
        values *= weight
        total = self._sum[place.index]
        total += values


class ExactAccumulator(RowAccumulator):
    """The same for weights that are whole numbers: `coarse` and `fine` are whole numbers of the two units.

    Different pairs of whole numbers may stand for one sum: what is far from 0 in `fine` is carried over to
    `coarse` only when it must be.
    """

    def __init__(
        self, name: str, start: int, stop: int, shape: tuple[int, ...], scratch: Scratch | None = None
    ) -> None:
        super().__init__(name, start, stop, shape, scratch)
        self.coarse, self.fine = np.zeros_like(self._sum), self._sum
        self._most = 0.0

    @property
    def total(self) -> Floats:  # rounded to doubles once
        return join_sums(self.coarse, self.fine)

    def add_sums(self, coarse: Floats, fine: Floats) -> None:
        """Add the same rows of another exact sum, whose whole numbers are any below 2^53."""
        self._carry()
        whole = np.rint(fine * (FINE / COARSE))
        self.coarse += coarse + whole
        self.fine += fine - whole * (COARSE / FINE)
        self._most += COARSE

    def carry_over(self) -> tuple[Floats, Floats]:
        """`coarse` and `fine`, with at most half a coarse unit in `fine`."""
        self._carry()
        return self.coarse, self.fine

    def _bounds(self, values: AnyArray, scales: AnyArray | None) -> Bounds:
        if scales is not None and values.dtype.kind == "i":
            steps = np.abs(scales)
            largest = float(steps.max(initial=0)) * -float(np.iinfo(values.dtype).min)
            # No code other than 0 makes a number below its step.
            return Bounds(largest, whole=float(steps.min(initial=np.inf, where=steps > 0)) >= WHOLE_FROM)
        scale = 1.0 if scales is None else float(np.abs(scales).max(initial=0))
        return Bounds(scale * max(float(values.max()), -float(values.min())))

    def _add_products(self, values: Floats, weight: float, place: IndexSet, bounds: Bounds) -> None:
        # In fine units, exactly: a float32 times a whole number times a power of two.
        values *= weight / FINE
        fine, largest = self.fine[place.index], bounds.largest * weight
        if largest > MAX_FINE:
            coarse = self.coarse[place.index]
            carried = np.rint(values * (FINE / COARSE))
            coarse += carried
            values -= carried * (COARSE / FINE)
            largest = COARSE
        if self._most + largest > MAX_FINE:
            self._carry()
        self._most += largest
        if not bounds.whole:
            np.rint(values, out=values)
        fine += values

    def _carry(self) -> None:
        whole = np.rint(self.fine * (FINE / COARSE))
        self.coarse += whole
        self.fine -= whole * (COARSE / FINE)
        self._most = COARSE


def join_sums(coarse: Floats, fine: Floats) -> Floats:
    return coarse * COARSE + fine * FINE
