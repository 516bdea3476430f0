"""A frozen mapping to which an entry can be added without copying all others."""

import math
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

Value = TypeVar("Value")

FEW = 64
"""Changes that are always kept apart."""


class PersistentMap(Mapping[str, Value], Generic[Value]):
    """A frozen mapping; `put` returns the next one, which shares all but the latest changes.

    Changes are kept apart until their number exceeds the square root of the rest: N births then cost
    N^1.5, where a copy each would cost N^2, which is minutes for 100,000 devices.
    """

    def __init__(self, settled: Mapping[str, Value], recent: Mapping[str, Value] | None = None) -> None:
        self._settled, self._recent = settled, recent or {}
        self._count = len(settled) + sum(name not in settled for name in self._recent)

    def put(self, name: str, value: Value) -> "PersistentMap[Value]":
        """The mapping with a new entry at the end, or another value in the entry's old place."""
        recent = {**self._recent, name: value}
        if len(recent) <= max(FEW, math.isqrt(len(self._settled))):
            return PersistentMap(self._settled, recent)
        return PersistentMap({**self._settled, **recent})

    def __getitem__(self, name: str) -> Value:
        if name in self._recent:
            return self._recent[name]
        return self._settled[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._settled
        yield from (name for name in self._recent if name not in self._settled)

    def __len__(self) -> int:
        return self._count
