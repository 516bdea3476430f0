"""The pruners by name: by index, by magnitude, at random, by attention, and layer by layer."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.channel_selection import group_scores, prefix_spec
from edge_client.system.plugins import Registry
from edge_server.strategy.aggregation.blocks import row_blocks
from edge_server.strategy.pruning.interface import Cut, Evidence, Pruner, Ratios, best_spec, random_spec
from edge_server.strategy.pruning.layers import Layers
from schemas.strategy import Component
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Array, Arrays
from schemas.values import PersonalPruning

__all__ = ["PRUNERS", "Cut", "Evidence", "Pruner"]


@dataclass(frozen=True)
class Index(Pruner):
    """Keep the leading channels (nested sub-models; HeteroFL, Diao et al. 2021)."""

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """A prefix per group."""
        return Cut(prefix_spec(ratios, channel_map))


@dataclass(frozen=True)
class Magnitude(Pruner):
    """Keep the channels with the largest L1 norms of weights (Li et al. 2017), ranked again each round.

    A group of coupled layers is ranked by the mean of its layers' norms, as with attention.
    """

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The channels of largest norm; the leading ones if norms are equal or unknown."""
        return Cut(self.tier(ratios, channel_map, params=evidence.params))

    def tier(self, ratios: Ratios, channel_map: ChannelMap, *, params: Arrays) -> SubModelSpec:
        """What `cut` keeps of these params."""
        norms = group_scores(l1_norms(ratios, channel_map, params), channel_map)
        return best_spec(norms, ratios, channel_map)


@dataclass(frozen=True)
class Random(Pruner):
    """Keep random channels, drawn each round (federated dropout, Caldas et al. 2018; FedDrop).

    One order of channels is drawn per round and group, and a device keeps its first channels: equal ratios
    give the same sub-model in a round, and smaller sub-models are contained in larger ones.
    """

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The first channels in the round's random order."""
        return Cut(random_spec(ratios, channel_map, evidence.seed))


@dataclass(frozen=True)
class Attention(Pruner):
    """Keep the most attended channels (ATTENDING, Algorithm 1 and section 3.3).

    Until channels are ranked, every device gets the whole network, trains it with attention modules and
    keeps its own best channels; from then on the server cuts the last p of the ranked channels.
    `first_round = "score-only"` skips the training of that first round and only measures attention. A network
    without channels to rank stays whole.
    """

    first_round: str = "train"

    def __post_init__(self) -> None:
        if self.first_round not in ("train", "score-only"):
            raise ValueError(f"first-round is 'train' or 'score-only', not '{self.first_round}'")

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The whole network and the ratios to prune it by, or a prefix once channels are ranked."""
        if evidence.ordered or not ratios:
            return Cut(prefix_spec(ratios, channel_map))
        layers = tuple(layer for group in sorted(ratios) for layer in channel_map.groups[group].layers)
        attentive = Component(name="attentive", options={"layers": layers})
        personal = PersonalPruning(ratios=dict(ratios))
        return Cut(SubModelSpec(), personal, (attentive,), train=self.first_round == "train")


def l1_norms(ratios: Ratios, channel_map: ChannelMap, params: Arrays) -> dict[str, NDArray[np.float64]]:
    """The sum of absolute weights per output channel [C], of each layer of the groups in `ratios`."""
    layers = {layer for group in ratios for layer in channel_map.groups[group].layers}
    known = {layer: params[f"{layer}.weight"] for layer in sorted(layers) if f"{layer}.weight" in params}
    return {layer: _absolute_sums(weight) for layer, weight in known.items()}


def _absolute_sums(weight: Array) -> NDArray[np.float64]:
    """The sum of each row [C], in blocks: a copy of a large layer would not fit into memory."""
    sums = np.empty(len(weight))
    for start, stop in row_blocks(weight.shape):
        sums[start:stop] = np.abs(weight[start:stop]).reshape(stop - start, -1).sum(axis=1, dtype=np.float64)
    return sums


PRUNERS: Registry[Callable[..., Pruner]] = Registry(
    "pruner",
    {
        "attention": Attention,
        "index": Index,
        "layers": Layers,
        "magnitude": Magnitude,
        "random": Random,
    },
)
RANKS_CHANNELS = frozenset({"attention"})
"""Pruners in which devices rank channels once; later rounds cut the last channels of the global model."""
NEW_EACH_ROUND = frozenset({"magnitude", "random"})
"""Pruners that give a device different channels in every round."""
PER_CLIENT = frozenset({"layers"})
"""Pruners that give devices of one ratio different parts of the network."""
