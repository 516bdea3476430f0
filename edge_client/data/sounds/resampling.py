"""Another sampling rate by a polyphase filter, block by block.

The low-pass is that of `scipy.signal.resample_poly`: a sinc under Kaiser's window (beta 5) with ten zero
crossings to each side. It is written here because a board that infers has no scipy.
"""

from collections.abc import Iterable, Iterator
from fractions import Fraction
from functools import lru_cache
from itertools import chain

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]

CROSSINGS, BETA = 10, 5.0
MAX_TERM = 10_000
"""Largest number in the ratio of two rates; others are off by less than a crystal is, and no filter becomes
large."""


def resample_blocks(blocks: Iterable[Samples], own: float, rate: float) -> Iterator[Samples]:
    """Samples at `rate` Hz of consecutive blocks at `own` Hz; cuts between them change nothing."""
    up, down = _ratio(own, rate)
    weights = _weights(up, down)
    reach = weights.shape[1] // 2
    silence = np.zeros(reach, np.float32)
    # `held` begins at the sample `begin`; before the first and after the last sample there is silence.
    held, begin, done = silence, -reach, 0
    for block in chain(blocks, [silence]):
        held = np.concatenate([held, block])
        end = -(-(begin + len(held) - reach) * up // down)
        if end > done:
            yield _filter_samples(held, weights, down, begin=begin, places=range(done, end))
            drop = end * down // up - reach - begin
            held, begin, done = held[drop:], begin + drop, end


def _filter_samples(held: Samples, weights: Samples, down: int, *, begin: int, places: range) -> Samples:
    """The new samples at `places`; those with the same weights at once."""
    up, width = weights.shape
    windows = np.lib.stride_tricks.sliding_window_view(held, width)
    found = np.empty(len(places), np.float32)
    for slot, place in enumerate(places[:up]):
        same = found[slot::up]
        same[:] = (
            windows[place * down // up - width // 2 - begin :: down][: len(same)] @ weights[place * down % up]
        )
    return found


@lru_cache(maxsize=4)
def _weights(up: int, down: int) -> Samples:
    """Weights [up, 2 R + 1] of the R samples before and after, for each place between two samples."""
    slower = max(up, down)
    half = CROSSINGS * slower
    taps = np.sinc(np.arange(-half, half + 1) / slower) * np.kaiser(2 * half + 1, BETA)
    reach = half // up + 1
    padded = np.zeros((2 * reach + 1) * up)
    padded[reach * up - half : reach * up + half + 1] = taps * (up / taps.sum())
    return np.ascontiguousarray(padded.reshape(-1, up).T[:, ::-1], np.float32)


def _ratio(own: float, rate: float) -> tuple[int, int]:
    """By how much samples become more and fewer, in lowest terms of at most `MAX_TERM`."""
    exact = Fraction(round(rate), round(own))
    if exact > 1:
        return _ratio(rate, own)[::-1]
    near = exact.limit_denominator(MAX_TERM)
    return near.numerator, near.denominator
