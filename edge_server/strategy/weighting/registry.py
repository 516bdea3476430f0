"""The weightings by name: K updates get K weights that sum to one."""

from abc import abstractmethod
from collections.abc import Callable, Sequence

import numpy as np

from edge_client.system.plugins import TraitRegistry
from edge_server.strategy.aggregation.updates import ClientUpdate, GlobalUpdate, sources_of
from edge_server.strategy.weighting import interface
from edge_server.strategy.weighting.fedrad import FedRad
from edge_server.strategy.weighting.igfl import IgflGlobal, IgflSelf, IgflTime


class _Counted(interface.Weighting[None]):
    """By whole numbers; equal ones when they are all 0."""

    @abstractmethod
    def count(self, source: ClientUpdate) -> int:
        """The number of one client."""

    def counts(self, sources: Sequence[ClientUpdate]) -> list[int]:
        found = [self.count(source) for source in sources]
        return found if any(found) else [1] * len(found)

    def weigh(self, state: None, updates: Sequence[GlobalUpdate]) -> interface.Weights:
        counts = np.array(self.counts(sources_of(updates)), dtype=np.float64)
        return np.asarray(counts / counts.sum())


@interface.WeightingTraits(
    frozenset({interface.Need.EXAMPLES}), trusts=interface.SHARE_TRUST, counted=True, masked="examples"
)
class Examples(_Counted):
    """By number of local examples, |D_k| / |D| (McMahan et al. 2017; ATTENDING, Algorithm 2 line 8).

    Weights are equal when no client has any example.
    """

    def count(self, source: ClientUpdate) -> int:
        return source.examples


@interface.WeightingTraits(frozenset(), counted=True, masked="equal")
class Equal(_Counted):
    """Equal weights, 1 / K (SCAFFOLD, Karimireddy et al. 2020, Algorithm 1, line 16; IGFL, eq. 5).

    A client without examples counts only if no client has any: its zero update would shorten the step.
    """

    def count(self, source: ClientUpdate) -> int:
        return int(source.examples > 0)


WEIGHTINGS: TraitRegistry[Callable[..., interface.AnyWeighting], interface.WeightingTraits] = TraitRegistry(
    "weighting",
    interface.WeightingTraits,
    {
        "equal": Equal,
        "examples": Examples,
        "fedrad": FedRad,
        "igfl-self": IgflSelf,
        "igfl-global": IgflGlobal,
        "igfl-time": IgflTime,
    },
)
