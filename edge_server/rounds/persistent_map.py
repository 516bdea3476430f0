"""All devices that a server knows, by name, where one more costs no copy of them all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

Value = TypeVar("Value")

FEW = 64
"""So many changes are kept apart in any case."""


class PersistentMap(Mapping[str, Value], Generic[Value]):
    """A frozen mapping: `put` gives the next one, and shares with it all but the latest changes.

    Changes are kept beside the rest until they are as many as the root of it: N births cost N to the power of
    1.5, where a copy each would cost N squared, which is minutes for 100,000 devices.
    """

    def __init__(self, settled: Mapping[str, Value], recent: Mapping[str, Value] | None = None) -> None:
        self._settled, self._recent = settled, recent or {}
        self._count = len(settled) + sum(name not in settled for name in self._recent)

    def put(self, name: str, value: Value) -> PersistentMap[Value]:
        """With one more at the end, or another value in its old place."""
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
