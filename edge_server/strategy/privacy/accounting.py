"""The privacy cost of a run's noisy releases: epsilon at a delta, by Google's `dp-accounting`.

Two neighbouring relations:

- *zero-out* (`REPLACE_SPECIAL` in the library; Kairouz et al. 2021, Practical and Private (Deep) Learning
  without Sampling or Shuffling, definition 1.1): two runs are neighbours if one client's contribution is
  missing from every sum, and all plans are the same. One client moves a sum by at most the clip S, so noise
  of deviation z S is a Gaussian mechanism of noise multiplier z. The selected clients may be public, and
  random selection gains nothing. T releases are one Gaussian mechanism of multiplier z / sqrt(T), whose
  epsilon is known exactly (Dong et al. 2022, corollary 3.3; Balle and Wang 2018, theorem 8).
- *replace-one*: one client's data is exchanged for any other. That moves a sum by up to 2 S, so the
  multiplier is z / 2; in return n clients drawn of N at random without replacement hide who took part (Wang,
  Balle and Kasiviswanathan 2019, theorem 27; accounted by Renyi divergences). The lower of this and of the
  exact value without the draw holds.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edge_server.strategy.aggregation.blocks import row_blocks
from schemas.tensors.arrays import kind_of, rows_of

# Gaussian noise that only a holder of the key can reproduce.

KEY_BYTES = 32
CELL_NUMBERS = 256 * 1024  # numbers drawn at once, or one row of a parameter if that is longer


def round_key(secret: bytes, number: int, sums: Mapping[str, NDArray[np.float64]], count: float) -> bytes:
    """The key of one release, derived from the secret, the round, and the sums [P] and count that it hides.

    Different sums get different noise: otherwise, if a round were closed twice with different updates, the
    difference of the two results would contain no noise.
    """
    digest = hashlib.blake2b(key=secret, digest_size=KEY_BYTES)
    digest.update(f"{number}/{count!r}".encode())
    for name in sorted(sums):
        digest.update(name.encode())
        for start, stop in row_blocks(kind_of(sums, name)[1]):
            digest.update(np.ascontiguousarray(rows_of(sums, name, start, stop)).data)
    return digest.digest()


def noise_rows(key: bytes, name: str, shape: tuple[int, ...], start: int, stop: int) -> NDArray[np.float64]:
    """Rows of a parameter's normal numbers, [stop - start, ...], drawn in cells with a label each.

    The first cell's label is the parameter's name.
    """
    shape = shape or (1,)
    cells = []
    for number, (first, last) in enumerate(row_blocks(shape, CELL_NUMBERS)):
        if first < stop and last > start:
            label = f"{name}/{number}" if number else name
            drawn = standard_normal(key, label, (last - first, *shape[1:]))
            cells.append(drawn[max(start, first) - first : min(stop, last) - first])
    return np.concatenate(cells)


def standard_normal(key: bytes, label: str, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Independent normal numbers of mean 0 and variance 1 for this key and label, of any shape."""
    count = math.prod(shape)
    half = (count + 1) // 2
    bits = np.frombuffer(hashlib.shake_256(key + label.encode()).digest(16 * half), "<u8")
    uniform = ((bits >> np.uint64(11)) + 0.5) * 2.0**-53
    radius, angle = np.sqrt(-2 * np.log(uniform[:half])), 2 * np.pi * uniform[half:]
    pairs = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])
    return pairs[:count].reshape(shape)


@dataclass(frozen=True)
class SumNoise:
    """Noise for the sums of a group in one round, of `multiplier` times what an example changes them by."""

    secret: bytes
    round: int
    multiplier: float

    def add_to(self, sums: Mapping[str, NDArray[np.float64]], sensitivity: float) -> dict[str, Any]:
        """The noisy sums: equal ones have equal noise. Symmetric matrices are packed, and stay symmetric."""
        key, deviation = round_key(self.secret, self.round, sums, 0.0), self.multiplier * sensitivity
        return {
            name: array + deviation * standard_normal(key, f"{name}/sum", array.shape)
            for name, array in sums.items()
        }


class Release(NamedTuple):
    """`rounds` equal releases, each with `sample` clients drawn of `population` (1 of 1: no draw)."""

    noise_multiplier: float
    sample: int
    population: int
    rounds: int = 1


def add_release(releases: Iterable[Release], release: Release) -> tuple[Release, ...]:
    """The releases with one more; equal ones are counted, as their order is irrelevant."""
    counts = {known[:3]: known.rounds for known in releases}
    counts[release[:3]] = counts.get(release[:3], 0) + release.rounds
    return tuple(Release(*key, rounds) for key, rounds in sorted(counts.items()))


@lru_cache(maxsize=64)
def epsilon(releases: tuple[Release, ...], delta: float, *, replaced: bool = False) -> float:
    """The epsilon that all releases together spend at `delta`; `replaced`: under the relation replace-one."""
    if not releases:
        return 0.0
    from dp_accounting import get_epsilon_gaussian  # type: ignore[import-untyped]

    reach = 2.0 if replaced else 1.0  # one client moves a sum by so many clips
    precision = sum(release.rounds * (reach / release.noise_multiplier) ** 2 for release in releases)
    exact = float(get_epsilon_gaussian(1 / math.sqrt(precision), delta))
    if not replaced:
        return exact
    from dp_accounting import rdp

    divergence = sum(release.rounds * _divergence(*release[:3]) for release in releases)
    drawn, _ = rdp.compute_epsilon(_accountant().orders, divergence, delta)
    return min(exact, float(drawn))


@lru_cache(maxsize=1024)
def _divergence(noise_multiplier: float, sample: int, population: int) -> NDArray[np.float64]:
    """The Renyi divergence of one release at each of the accountant's orders (takes a third of a second)."""
    from dp_accounting import GaussianDpEvent, SampledWithoutReplacementDpEvent

    accountant = _accountant()
    gaussian = GaussianDpEvent(noise_multiplier / 2)
    accountant.compose(SampledWithoutReplacementDpEvent(population, sample, gaussian))
    return np.asarray(accountant.rdp)


def _accountant() -> Any:
    from dp_accounting import NeighboringRelation, rdp

    return rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
