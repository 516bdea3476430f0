"""The pruners by name: by index, by magnitude, at random, by attention, and layer by layer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.channel_selection import best_spec, group_scores, kept_count, prefix_spec
from edge_client.system.plugins import TraitRegistry
from edge_server.strategy.aggregation.blocks import row_blocks
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.pruning.interface import (
    SCORES,
    Cut,
    Evidence,
    Known,
    Pruner,
    PrunerTraits,
    Ratios,
    random_spec,
)
from edge_server.strategy.pruning.own_parts import Layers
from schemas.strategy import Component, PersonalPruning
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Arrays

__all__ = ["PRUNERS", "Cut", "Evidence", "Pruner"]


@PrunerTraits(is_prefix=True)
@dataclass(frozen=True)
class Index(Pruner):
    """Keep the leading channels (nested sub-models; HeteroFL, Diao et al. 2021)."""

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        return Cut(prefix_spec(ratios, channel_map))


@PrunerTraits(is_new_each_round=True)
@dataclass(frozen=True)
class Magnitude(Pruner):
    """Keep the channels with the largest L1 norms of weights (Li et al. 2017), ranked again each round.

    A group of coupled layers is ranked by the mean of its layers' norms, as with attention.
    """

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        return Cut(self.tier(ratios, channel_map, evidence))

    def tier(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> SubModelSpec:
        return largest_norms(ratios, channel_map, evidence.params)


@PrunerTraits(is_new_each_round=True)
@dataclass(frozen=True)
class Random(Pruner):
    """Keep random channels, drawn each round (federated dropout, Caldas et al. 2018; FedDrop).

    One order of channels is drawn per round and group, and a device keeps its first channels: equal ratios
    give the same sub-model in a round, and smaller sub-models are contained in larger ones.
    """

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        return Cut(random_spec(ratios, channel_map, evidence.seed))


@PrunerTraits(is_new_each_round=True)
@dataclass(frozen=True)
class Rolling(Pruner):
    """Keep a window of channels that moves on by one channel per round (FedRolex, Alam et al. 2022).

    Every channel is trained as often as any other. Windows of one round begin at one channel, so that smaller
    sub-models are contained in larger ones. A tier is tested with its leading channels.
    """

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The window of the round; blocks that must stay whole move as one."""
        kept: dict[str, tuple[int, ...]] = {}
        for name, ratio in ratios.items():
            group = channel_map.groups[name]
            count = kept_count(group.channels, ratio, group.multiple)
            if count < group.channels:
                first = (evidence.round - 1) * group.multiple
                kept[name] = tuple(sorted((first + offset) % group.channels for offset in range(count)))
        return Cut(SubModelSpec(kept=kept))


@PrunerTraits(ranks_channels=True)
@dataclass(frozen=True)
class Attention(Pruner):
    """Keep the most attended channels (ATTENDING, Algorithm 1 and section 3.3).

    In the first round every device gets the whole network, scores its channels with attention modules, keeps
    its own best ones, and sends the scores. From then on all channels have one common order, by the mean of
    the clients' scores weighted by examples, and the server cuts the last p of that order. With the transform
    `attention-matching`, each client's channels are moved by its own order instead.

    `first_round`: with `prune-first` a device scores the received network in forward passes, and trains what
    it keeps of it; with `train` it trains the whole network, as in the paper, and prunes it then; with
    `score-only` nobody trains. `keep = "lowest"` prunes the most attended channels: equation 8 and
    Algorithm 2 to the letter. With `scores = "output-energy"` a channel's score is not its attention, but the
    energy of its part in what the next layers make of it: for networks that were trained before. A network
    without channels to rank stays whole.
    """

    first_round: str = "prune-first"
    keep: str = "highest"
    scores: str = "attention"

    def __post_init__(self) -> None:
        _expect_one_of("first-round", self.first_round, ("prune-first", "train", "score-only"))
        _expect_one_of("keep", self.keep, ("highest", "lowest"))
        _expect_one_of("scores", self.scores, ("attention", "output-energy"))
        if self.scores == "output-energy" and (self.keep, self.first_round) != ("highest", "prune-first"):
            raise ValueError(
                "scores = 'output-energy' goes with keep = 'highest', first-round = 'prune-first'"
            )

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The whole network and the ratios to prune it by, or the tier's part once channels are ranked."""
        if self.is_ranked(evidence) or not ratios:
            return Cut(self.tier(ratios, channel_map, evidence))
        attentive = self._scoring(target_layers(ratios, channel_map))
        if self.first_round == "prune-first":
            return Cut(SubModelSpec(), PersonalPruning(ratios=dict(ratios), scored_by=attentive))
        return ranking_cut(attentive, ratios, train=self.first_round == "train")

    def _scoring(self, layers: tuple[str, ...]) -> Component:
        if self.scores == "output-energy":
            return Component(name="output-energy", options={"layers": layers})
        return Component(name="attentive", options={"layers": layers, "lowest": self.keep == "lowest"})

    def tier(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> SubModelSpec:
        """The best channels in the common order; a prefix if the model itself is in order, or unranked."""
        if evidence.ordered or not evidence.known:
            return prefix_spec(ratios, channel_map)
        return best_spec(evidence.known, ratios, channel_map)

    def is_ranked(self, evidence: Evidence) -> bool:
        """From the round after the one in which devices sent scores."""
        return evidence.ordered or bool(evidence.known)

    def observe(self, known: Known, updates: Sequence[ClientUpdate], channel_map: ChannelMap) -> Known:
        """The mean score of each channel, {group: [C]}, from the first round in which devices send scores."""
        return known or mean_scores(updates, channel_map)


@PrunerTraits(ranks_channels=True, is_per_client=True)
@dataclass(frozen=True)
class OwnMagnitude(Pruner):
    """Each client keeps the channels with the largest L1 norms in its own model (ATTENDING, section 4.3).

    The paper's version without attention: in its first round a client trains the whole network and ranks its
    own channels; it trains those that it kept in all later rounds. Tiers are tested with the channels of
    largest norm in the global model.
    """

    def cut(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> Cut:
        """The channels that the client kept in its first round, or the whole network in that round."""
        names = {group: f"{evidence.client}/{group}" for group in ratios}
        learned = evidence.known
        own = {group: tuple(map(int, learned[name])) for group, name in names.items() if name in learned}
        if own or not ratios:
            return Cut(SubModelSpec(kept=own))
        measured = Component(name="magnitude-scores", options={"layers": target_layers(ratios, channel_map)})
        return ranking_cut(measured, ratios)

    def tier(self, ratios: Ratios, channel_map: ChannelMap, evidence: Evidence) -> SubModelSpec:
        return largest_norms(ratios, channel_map, evidence.params)

    def observe(self, known: Known, updates: Sequence[ClientUpdate], channel_map: ChannelMap) -> Known:
        """The channels that each client kept, {client/group: ascending indices}, from its first update."""
        first = {
            f"{update.client}/{group}": np.sort(
                np.array(update.spec.indices(group, channel_map.groups[group].channels), np.int32)
            )
            for update in updates
            if update.groups.get(SCORES)
            for group in group_scores(update.groups[SCORES], channel_map)
        }
        return {**first, **known}


def ranking_cut(objective: Component, ratios: Ratios, *, train: bool = True) -> Cut:
    """The whole network, which the device prunes itself by the scores of `objective`.

    A device that does not train sends its scores alone.
    """
    personal = PersonalPruning(ratios=dict(ratios))
    return Cut(SubModelSpec(), personal, (objective,), train=train, returned=None if train else ())


def target_layers(ratios: Ratios, channel_map: ChannelMap) -> tuple[str, ...]:
    return tuple(layer for group in sorted(ratios) for layer in channel_map.groups[group].layers)


def mean_scores(updates: Sequence[ClientUpdate], channel_map: ChannelMap) -> dict[str, NDArray[np.float64]]:
    """The mean of the clients' scores {group: [C]}, weighted by examples (ATTENDING, equation 8)."""
    sums: dict[str, NDArray[np.float64]] = {}
    weights: dict[str, int] = {}
    for update in sorted(updates, key=lambda update: update.client):
        examples = max(1, update.examples)
        for group, scores in group_scores(update.groups.get(SCORES, {}), channel_map).items():
            sums[group] = sums.get(group, np.float64(0)) + examples * scores.astype(np.float64)
            weights[group] = weights.get(group, 0) + examples
    return {group: total / weights[group] for group, total in sums.items()}


def largest_norms(ratios: Ratios, channel_map: ChannelMap, params: Arrays) -> SubModelSpec:
    """The channels with the largest L1 norms in `params`; the leading ones if norms are equal or unknown."""
    norms = group_scores(l1_norms(ratios, channel_map, params), channel_map)
    return best_spec(norms, ratios, channel_map)


def l1_norms(ratios: Ratios, channel_map: ChannelMap, params: Arrays) -> dict[str, NDArray[np.float64]]:
    """The sum of absolute weights per output channel [C], of each layer of the groups in `ratios`."""
    layers = {layer for group in ratios for layer in channel_map.groups[group].layers}
    known = {layer: params[f"{layer}.weight"] for layer in sorted(layers) if f"{layer}.weight" in params}
    return {layer: _absolute_sums(weight) for layer, weight in known.items()}


def _expect_one_of(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        *others, last = (f"'{name}'" for name in allowed)
        raise ValueError(f"{option} is {', '.join(others)} or {last}, not '{value}'")


def _absolute_sums(weight: Array) -> NDArray[np.float64]:
    """The sum of each row [C], in blocks: a copy of a large layer would not fit into memory."""
    sums = np.empty(len(weight))
    for start, stop in row_blocks(weight.shape):
        sums[start:stop] = np.abs(weight[start:stop]).reshape(stop - start, -1).sum(axis=1, dtype=np.float64)
    return sums


PRUNERS: TraitRegistry[Callable[..., Pruner], PrunerTraits] = TraitRegistry(
    "pruner",
    PrunerTraits,
    {
        "attention": Attention,
        "index": Index,
        "layers": Layers,
        "magnitude": Magnitude,
        "own-magnitude": OwnMagnitude,
        "random": Random,
        "rolling": Rolling,
    },
)
