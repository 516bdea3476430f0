"""Windows of a series: which rows end one."""

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray


def window_ends(
    count: int, groups: NDArray[Any] | None, *, window: int, stride: int, after: int = 0
) -> NDArray[np.int64]:
    """The last rows of all windows of `window` rows, of `count`, with `after` more rows behind them.

    `groups` [count] are the series of the rows: no window, nor what follows it, crosses from one to another.
    Windows begin every `stride` rows of a series.
    """
    cuts = np.flatnonzero(groups[1:] != groups[:-1]) + 1 if groups is not None and count else np.zeros(0, int)
    edges = np.concatenate([[0], cuts, [count]]).astype(np.int64)
    found = [
        np.arange(start + window - 1, stop - after, stride, dtype=np.int64)
        for start, stop in pairwise(edges.tolist())
    ]
    return np.concatenate(found) if found else np.zeros(0, np.int64)
