"""Windows of a series: which rows end one."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def window_ends(
    count: int,
    breaks: NDArray[Any] | None,
    *,
    window: int,
    stride: int,
    after: int = 0,
    numbers: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """The last rows of all windows of `window` rows, of `count`, with `after` more rows behind them.

    At `breaks` [count - 1] the next row begins another series: no window, nor what follows it, crosses one.
    Windows begin every `stride` rows of a series. With the rows' `numbers` [count], a gap begins another
    series, and windows end at multiples of `stride`, so that they stay the same when earlier rows are gone.
    """
    breaks = np.zeros(max(count - 1, 0), bool) if breaks is None else breaks.copy()
    if numbers is not None:
        breaks |= np.diff(numbers) != 1
    edges = np.concatenate([[0], np.flatnonzero(breaks) + 1, [count]]).astype(np.int64)
    found = []
    for start, stop in pairwise(edges.tolist()):
        first = start + window - 1
        if numbers is not None and first < stop:
            first += int(-numbers[first] % stride)
        found.append(np.arange(first, stop - after, stride, dtype=np.int64))
    return np.concatenate(found) if found else np.zeros(0, np.int64)
