"""The order of the examples in each epoch: torch's random permutations, without torch."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray


def epoch_orders(seed: int, count: int) -> Iterator[NDArray[np.int64]]:
    """Endless random orders of `count` examples, those of `torch.randperm` with a generator of that seed.

    torch draws 32 bits of a Mersenne Twister per position (Matsumoto and Nishimura 1998) and swaps
    (Durstenfeld 1964).
    """
    bits = np.random.MT19937()
    bits._legacy_seeding(seed & 0xFFFFFFFF)
    while True:
        order = np.arange(count, dtype=np.int64)
        if count > 1:
            draws = bits.random_raw(count - 1) % np.arange(count, 1, -1, dtype=np.uint64)
            _swap(order, draws.astype(np.int64))
        yield order


def _swap(order: NDArray[np.int64], draws: NDArray[np.int64]) -> None:
    """Swap each position with the one that many places behind it."""
    values = order.tolist()
    for place, offset in enumerate(draws.tolist()):
        other = place + offset
        values[place], values[other] = values[other], values[place]
    order[:] = values
