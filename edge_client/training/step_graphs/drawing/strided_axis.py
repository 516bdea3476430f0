"""The maxima of windows along one axis of a map, and their gradients, without reading anything in steps.

Windows that are a stride apart read every stride-th element at each of their places. Here these elements are
a part of their own, in which another place is a shift.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional

ROWS, COLUMNS = 2, 3  # axes of maps [B, C, H, W]


@dataclass(frozen=True)
class StridedAxis:
    """An axis of `size` elements, `places` of which are those of the first window.

    It lies in `stride` parts, which have the same number of elements.
    """

    axis: int
    places: range
    stride: int
    size: int

    @property
    def length(self) -> int:
        return -(-self.size // self.stride)

    def largest(self, parts: Sequence[Tensor]) -> Tensor:
        """The maxima of as many windows as a part has elements."""
        return reduce(torch.maximum, [self._elements(parts, place, self.length) for place in self.places])

    def hits(self, parts: Sequence[Tensor], maxima: Tensor) -> list[Tensor | None]:
        """For each place, where its element of a window is the largest, as Booleans.

        None stands for the last place, where every window has its maximum that has it nowhere before.
        """
        count = maxima.shape[self.axis]
        is_in_all = self.places[-1] + self.stride * (count - 1) < self.size
        compared = self.places[:-1] if is_in_all else self.places
        found: list[Tensor | None] = [self._elements(parts, place, count) == maxima for place in compared]
        return [*found, None] if is_in_all else found

    def spread(self, gradient: Tensor, hits: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients of the parts from that of the maxima; of equal elements the first one has it."""
        left = gradient
        shares: list[list[Tensor]] = [[] for _ in range(self.stride)]
        for place, hit in zip(self.places, hits, strict=True):
            chosen = left
            if hit is not None:
                chosen = left * hit.to(left.dtype)
                left = left - chosen
            shift, part = divmod(place, self.stride)
            shares[part].append(moved(chosen, self.axis, shift, self.length))
        return [
            reduce(torch.add, share)
            if share
            else moved(torch.zeros_like(gradient), self.axis, 0, self.length)
            for share in shares
        ]

    def _elements(self, parts: Sequence[Tensor], place: int, count: int) -> Tensor:
        """The elements of `count` windows at one of their places."""
        shift, part = divmod(place, self.stride)
        return moved(parts[part], self.axis, -shift, count, -math.inf)


def moved(x: Tensor, axis: int, shift: int, size: int, number: float = 0) -> Tensor:
    """`x` [B, C, H, W] moved along an axis, which then has `size` elements, with `number` where it has none.

    onnxruntime pads the innermost axis alone fast, in long runs: rows are padded as places of flat maps. For
    columns, a product with a matrix of zeros and ones takes less than half the time.
    """
    batch, channels, height, width = x.shape
    after = size - x.shape[axis] - shift
    if shift == after == 0:
        return x
    if axis == ROWS:
        flat = functional.pad(x.flatten(2), (width * shift, width * after), value=number)
        return flat.reshape(batch, channels, size, width)
    columns = torch.arange(size) - shift
    moves = (torch.arange(width)[:, None] == columns).to(x.dtype)
    filling = torch.zeros_like(moves[0]).masked_fill((columns < 0) | (columns >= width), number)
    return torch.addmm(filling, x.reshape(-1, width), moves).reshape(batch, channels, height, size)
