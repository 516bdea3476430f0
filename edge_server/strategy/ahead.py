"""Rows that are made when they are asked for, made a little ahead, so that two cores are at it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from schemas.blobs import Arrays
from schemas.tensors import AnyArray, rows_of

AT_ONCE = 2
"""Blocks that are being made: each is as much memory as one alone would be."""

Place = tuple[str, int, int]
"""Rows (name, start, stop) of an array."""


def made_ahead(arrays: Arrays, places: Iterable[Place]) -> Iterator[tuple[Place, AnyArray]]:
    """The rows at each place, in the order of the places. No row may depend on whether another was made."""
    waiting: deque[tuple[Place, Future[AnyArray]]] = deque()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for place in places:
            waiting.append((place, pool.submit(rows_of, arrays, *place)))
            if len(waiting) == AT_ONCE:
                yield _first(waiting)
        while waiting:
            yield _first(waiting)


def _first(waiting: deque[tuple[Place, Future[AnyArray]]]) -> tuple[Place, AnyArray]:
    place, rows = waiting.popleft()
    return place, rows.result()
