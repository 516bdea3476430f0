"""Rows that are made when they are asked for, made in pairs, so that two cores are at it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from schemas.blobs import Arrays
from schemas.tensors import AnyArray, rows_of

Place = tuple[str, int, int]
"""Rows (name, start, stop) of an array."""


def made_ahead(arrays: Arrays, places: Iterable[Place]) -> Iterator[tuple[Place, AnyArray]]:
    """The rows at each place, in the order of the places. No row may depend on whether another was made.

    Of two the second is made beside the first, which whoever asks makes: what one more thread keeps of the
    memory that it has worked in is most of what this costs.
    """
    left = iter(places)
    with ThreadPoolExecutor(1) as pool:
        for first in left:
            second = next(left, None)
            coming = pool.submit(rows_of, arrays, *second) if second is not None else None
            yield first, rows_of(arrays, *first)
            if second is not None and coming is not None:
                yield second, coming.result()
