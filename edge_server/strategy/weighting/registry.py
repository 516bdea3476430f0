"""The weightings by name: K updates get K weights that sum to one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from edge_client.system.plugins import Registry
from edge_server.strategy.aggregation.updates import ClientUpdate, GlobalUpdate, sources_of
from edge_server.strategy.weighting.fedrad import FedRad
from edge_server.strategy.weighting.igfl import IgflGlobal, IgflSelf, IgflTime
from edge_server.strategy.weighting.interface import AnyWeighting, Weighting, Weights


class _Counted(Weighting[None]):
    """By whole numbers; equal ones when they are all 0."""

    @abstractmethod
    def count(self, source: ClientUpdate) -> int:
        """The number of one client."""

    def counts(self, sources: Sequence[ClientUpdate]) -> list[int]:
        """Whole numbers [K]."""
        found = [self.count(source) for source in sources]
        return found if any(found) else [1] * len(found)

    def weigh(self, state: None, updates: Sequence[GlobalUpdate]) -> Weights:
        """Weights [K]."""
        counts = np.array(self.counts(sources_of(updates)), dtype=np.float64)
        shares: Weights = counts / counts.sum()
        return shares


class Examples(_Counted):
    """By number of local examples, |D_k| / |D| (McMahan et al. 2017; ATTENDING, Algorithm 2 line 8).

    Weights are equal when no client has any example.
    """

    def count(self, source: ClientUpdate) -> int:
        """|D_k|."""
        return source.examples


class Equal(_Counted):
    """Equal weights, 1 / K (SCAFFOLD, Karimireddy et al. 2020, Algorithm 1, line 16; IGFL, eq. 5).

    A client without examples counts only if no client has any: its zero update would shorten the step.
    """

    def count(self, source: ClientUpdate) -> int:
        """1 for a client with examples."""
        return int(source.examples > 0)


WEIGHTINGS: Registry[Callable[..., AnyWeighting]] = Registry(
    "weighting",
    {
        "equal": Equal,
        "examples": Examples,
        "fedrad": FedRad,
        "igfl-self": IgflSelf,
        "igfl-global": IgflGlobal,
        "igfl-time": IgflTime,
    },
)
_SHARE = "a device may count max-examples-factor times as much as the usual one"
_LIKENESS = "the larger an update is, within bounds, the more it counts"
TRUSTS = {
    "examples": _SHARE,
    "fedrad": _SHARE,
    "igfl-self": _LIKENESS,
    "igfl-global": _LIKENESS,
    "igfl-time": _LIKENESS,
}
"""What each weighting takes on trust from devices, in words."""
PLAIN = frozenset({"equal", "examples"})
"""Weightings that ignore the content of updates; a combiner that ignores weights loses nothing."""
ALIKE = frozenset({"equal"})
"""Weightings that reveal nothing of clients' data (differential privacy)."""
COUNTED = PLAIN
"""Weightings by whole numbers that each update has of its own: weighted sums of them can be exact."""
NEEDS_HELD_OUT = frozenset({"fedrad"})
"""Weightings that need measurements on held-out data of the devices."""
NEEDS_ACCURACY = frozenset({"fedrad"})
"""Weightings that go by the devices' accuracies, which not every learning task has."""
