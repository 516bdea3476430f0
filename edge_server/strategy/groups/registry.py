"""The group rules by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from edge_client.system.plugins import TraitRegistry
from edge_server.strategy.aggregation import deltas, means
from edge_server.strategy.aggregation.array_stores import store_arrays
from edge_server.strategy.aggregation.blocks import as_rows, lazy_arrays
from edge_server.strategy.aggregation.updates import GlobalUpdate, group_to_global, is_statistic, sources_of
from edge_server.strategy.groups.feature_sums import ClassMeansHead, RidgeHead
from edge_server.strategy.groups.header import Header
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, GroupTraits, Shape, Tiers, zeros
from edge_server.strategy.groups.statistics import FULL, Statistics, arrays_of_tier, by_tier
from edge_server.strategy.groups.widths import Widths
from edge_server.strategy.selection.interface import RoundResult
from schemas.errors import PeerError, Reason
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Arrays, GatheredArrays, kind_of, rows_of
from schemas.values import ModelSpec

# FedMix's pool of averaged examples (Yoon et al. 2021, Mean Augmented Federated Learning, Algorithm 1).


@GroupTraits(ignores_models=True)
@dataclass(frozen=True)
class MeanData(GroupRule):
    """Every device's averaged examples, sent to all: `images` [M, C, H, W] and `labels` [M, classes].

    The server holds `images/<client>` and `labels/<client>`, and the last `round`. The paper sends down the
    averages of all its 60 to 100 clients. Those of a thousand clients would be larger than the model, so at
    most `pool` averages are sent down, drawn again in every round and the same for all devices.
    """

    pool: int = 256
    name: ClassVar[str] = "mean-data"
    bounded: ClassVar[frozenset[str]] = frozenset({"images"})

    def __post_init__(self) -> None:
        if self.pool < 1:
            raise ValueError("pool must be at least 1")

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple) -> Arrays:
        """The pool, sorted by client; the same for every sub-model."""
        clients = sorted(name.removeprefix("images/") for name in held if name.startswith("images/"))
        if not clients:
            return {}
        images = np.concatenate([held[f"images/{client}"] for client in clients])
        labels = np.concatenate([held[f"labels/{client}"] for client in clients])
        if len(images) <= self.pool:
            return {"images": images, "labels": labels}
        random = np.random.default_rng(int(held["round"][0]))
        chosen = np.sort(random.permutation(len(images))[: self.pool])
        return {"images": images[chosen], "labels": labels[chosen]}

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        return {"images": (None, *network.input_shape), "labels": (None, network.num_classes)}

    def check(self, sent: Arrays, examples: int) -> None:
        """Each average is of two examples or more, with a distribution over the classes as its label."""
        if 2 * len(sent["images"]) > examples or not _are_means(sent["images"], sent["labels"]):
            detail = f"{len(sent['images'])} averages of {examples} examples with labels that are not shares"
            raise PeerError(detail, reason=Reason.OUT_OF_BOUNDS)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """A client's averages replace its earlier ones; malformed averages are ignored."""
        after = {**held, "round": np.array([result.round], np.float32)}
        for source in sources_of(result.updates):
            sent = source.groups.get(self.name)
            if sent and _are_means(sent["images"], sent["labels"]):
                after |= {f"{kind}/{source.client}": sent[kind] for kind in ("images", "labels")}
        return FoldedGroup(after, result.after)


def _are_means(images: Array, labels: Array) -> bool:
    """Whether every image has a label, and every label is a distribution over the classes."""
    shares = (labels >= 0).all() and np.allclose(labels.sum(1), 1, atol=1e-3)
    return len(images) == len(labels) and bool(shares)


# SCAFFOLD's server side of the controls (Karimireddy et al. 2020, Algorithm 1, line 17).

COUNT = "clients"  # the server's array for the number of clients that c is the mean of


@GroupTraits("what a device adds to the controls within bounds stays in them, round after round")
class Control(GroupRule):
    """c <- c + sum_i (c_i+ - c_i) / N over the round's clients, of the N that are known.

    c is the mean of every client's c_i, 0 for a client that never trained: a client adds nothing to
    coordinates that it lacks. If clients have joined, c is first scaled to the new N.
    """

    name = "control"
    spread = 3.0

    def start(self, params: Arrays) -> Arrays:
        return zeros(params)

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple) -> Arrays:
        return super().down(_control(held), spec, channel_map)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """Add the clients' changes, accumulated in double precision."""
        changes = [group_to_global(update, self.name, result.channel_map)[0] for update in result.updates]
        # N: all known clients, and those that sent updates.
        senders = {source.client for source in sources_of(result.updates)}
        count = len(senders | {client.name for client in result.clients})
        before = float(held[COUNT][0]) if COUNT in held else count

        def rows(name: str, start: int, stop: int) -> Array:
            control = as_rows(rows_of(held, name, start, stop))
            total = np.zeros_like(control, np.float64)
            for change in changes:
                if name in change:
                    values, place = deltas.delta_rows(change, name, start, stop).in_runs()
                    total[place.index] += values
            return ((before * control + total) / count).astype(np.float32)

        control = _control(held)
        after = store_arrays(lazy_arrays({name: control.kind(name) for name in control}, rows), result.keep)
        clients = np.array([count], np.float32)
        after.put_rows(COUNT, (clients.dtype, clients.shape), 0, clients)
        return FoldedGroup(after, result.after)


def _control(held: Arrays) -> GatheredArrays:
    return GatheredArrays({name: (held, name) for name in held if name != COUNT})


# Batch normalisation of every tier's own (NeFL, Kang et al. 2023, section 3: inconsistent parameters).


class TierNorms(GroupRule):
    """Weights, biases and statistics of batch normalisation are means over one tier's devices, not over all.

    Widths see inputs of different magnitudes. The server holds `{key}/{parameter}` in global coordinates,
    where `key` is the number of channels that the tier keeps of each group. A tier begins with the global
    model's arrays. Nothing else is sent than the model, in which a device has its tier's normalisation.
    """

    name = "tier-norms"
    owns = True
    downlink = False
    uplink = False

    def own(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """The normalisation of the tier with this sub-model; {} before its first round."""
        return arrays_of_tier(held, spec, channel_map)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """Add to each tier's arrays the mean of its devices' changes, by their weights."""
        trained = [update for update in result.updates if update.source.groups["model"]]
        names = normalisation(result.before)
        after = dict(held)
        for key, updates in by_tier(trained, result.channel_map).items():
            for name in names:
                before = held.get(f"{key}/{name}", result.before[name])
                after[f"{key}/{name}"] = before + _mean_change(updates, name, result.weights)
        whole = {name: after.get(f"{FULL}/{name}", result.before[name]) for name in names}
        return FoldedGroup(after, {**result.after, **whole})


def normalisation(names: Arrays) -> list[str]:
    """The arrays of batch normalisations, which are the layers with running statistics."""
    layers = {name.rpartition(".")[0] for name in names if is_statistic(name)}
    return [name for name in names if name.rpartition(".")[0] in layers]


def _mean_change(updates: Sequence[GlobalUpdate], name: str, weights: Mapping[str, float]) -> Array:
    """The mean change [C] over the devices of a tier, which hold the same number of channels."""
    shape = kind_of(updates[0].delta, name)[1]
    total, held = np.zeros(shape), np.zeros(shape)
    for update in updates:
        weight = weights[update.source.client]
        total += weight * np.asarray(update.delta[name], np.float64)
        held[update.held.index_set(name).index] += weight
    return np.divide(total, held, out=np.zeros_like(total), where=held > 0).astype(np.float32)


# IGFL's group behaviour: the global model's last step (Huang et al. 2021, Algorithm 2, line 2).


@GroupTraits(ignores_models=True, of_server=True)
class LastStep(GroupRule):
    """Delta w_ps = w^r - w^(r-1), sent down only; 0 before round one."""

    name = "last-step"
    uplink = False

    def start(self, params: Arrays) -> Arrays:
        return zeros(params)

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:

        def rows(name: str, start: int, stop: int) -> Array:
            after, before = as_rows(result.after[name]), as_rows(result.before[name])
            return after[start:stop] - before[start:stop]

        kinds = {name: kind_of(result.after, name) for name in result.after}
        return FoldedGroup(store_arrays(lazy_arrays(kinds, rows), result.keep), result.after)


# The intersection of a round's sub-models, which all devices share (Hermes; Li et al. 2021, MobiCom).


class Overlap(GroupRule):
    """Downlink only: masks named after the parameters, true where every update of the last round counts.

    The same intersection that the combiner `overlap-mean` averages, after transforms: with
    `fill-with-global` everything is shared. Nothing is sent before round one is closed.
    """

    name: ClassVar[str] = "overlap"
    uplink: ClassVar[bool] = False

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        masks: Mapping[str, Any] = dict(means.overlap(result.updates))
        return FoldedGroup(masks, result.after)


GROUPS: TraitRegistry[Callable[..., GroupRule], GroupTraits] = TraitRegistry(
    "group",
    GroupTraits,
    {
        "class-means": ClassMeansHead,
        "control": Control,
        "header": Header,
        "last-step": LastStep,
        "overlap": Overlap,
        "mean-data": MeanData,
        "ridge": RidgeHead,
        "statistics": Statistics,
        "tier-norms": TierNorms,
        "widths": Widths,
    },
)
