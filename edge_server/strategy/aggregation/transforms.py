"""Transforms: change each update, in global coordinates, before the updates are combined."""

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edge_client.pruning.channel_selection import group_scores, ranking
from edge_client.pruning.index_sets import IndexSet
from edge_client.system.plugins import TraitRegistry
from edge_client.training.objectives.formulas import gradient_mass
from edge_server.strategy.aggregation import blocks, deltas, norm_scaling
from edge_server.strategy.aggregation.updates import (
    ClientUpdate,
    GlobalUpdate,
    HeldCoordinates,
    RoundUpdates,
    TransformContext,
    TransformTraits,
    is_statistic,
    to_global,
)
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Array, Arrays, rows_of

# FedNova: updates normalised by their numbers of steps (Wang et al. 2020, section 4).
#
# Tackling the Objective Inconsistency Problem in Heterogeneous Federated Optimization. Each update is divided
# by |a_k|_1, how often a gradient counts in it, and all are multiplied by tau_eff, the mean of these. With
# the weighting `examples` and the combiner `mean` the model moves by tau_eff * sum_k p_k d_k, where d_k =
# delta_k / |a_k|_1.


@TransformTraits(scales=True, counts_steps=True)
@dataclass(frozen=True)
class NormaliseSteps:
    """Scale each update by tau_eff / |a_k|_1; with equal numbers of steps this is FedAvg.

    |a_k|_1 is the number of steps for plain SGD; with local `momentum`, which must be that of `[training]`, a
    gradient counts in later steps, too (`gradient_mass`). p_k is the share of examples, whatever the
    weighting, among the round's updates that took steps; updates without steps do not change. Neither do
    running statistics, which are means and not sums of steps: scaled, a variance could fall below 0.
    """

    momentum: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError("momentum must be at least 0 and below 1")

    def __call__(self, update: GlobalUpdate, around: TransformContext) -> GlobalUpdate:
        mass = self.mass(update.source)
        if mass == 0:
            return update
        factor = self.effective_steps(around.sources or (update.source,)) / mass
        delta = deltas.ScaledDeltas(
            deltas.as_deltas(update.delta, around.channel_map), factor, exempt=is_statistic
        )
        return replace(update, delta=delta)

    def mass(self, source: ClientUpdate) -> float:
        """|a_k|_1 of one update; 0 if it reports no steps."""
        return gradient_mass(int(source.metrics.get("steps", 0)), self.momentum)

    def effective_steps(self, sources: Sequence[ClientUpdate]) -> float:
        """tau_eff = sum_k p_k |a_k|_1; clients count equally if none has any example."""
        masses = [(source.examples, self.mass(source)) for source in sources]
        stepped = [(examples, mass) for examples, mass in masses if mass > 0]
        total = sum(examples for examples, _ in stepped)
        if total == 0:
            return sum(mass for _, mass in stepped) / max(1, len(stepped))
        return sum(examples * mass for examples, mass in stepped) / total


NORMALISATION, LINEAR = 1, 2  # axes of the weights of such layers
Transform = Callable[[GlobalUpdate, TransformContext], GlobalUpdate]  # (update, the round) -> update


def transform_updates(
    transforms: Sequence[Transform],
    updates: Sequence[ClientUpdate],
    params: Arrays,
    channel_map: ChannelMap,
    *,
    ordered: bool,
) -> RoundUpdates:
    """The updates sorted by client, in global coordinates, after every transform."""
    sources = sorted(updates, key=lambda update: update.client)
    context = TransformContext(params, channel_map, sources, ordered)
    holdings = HeldCoordinates(channel_map)

    def make(source: ClientUpdate) -> GlobalUpdate:
        update = to_global(source, channel_map, holdings)
        for transform in transforms:
            update = transform(update, context)
        return update

    return RoundUpdates(sources, make)


@TransformTraits(moves_channels=True)
def attention_matching(*, rest: str = "moved") -> Transform:
    """Reorder a client's channels by its own attention, most attended first (ATTENDING, Algorithm 2).

    Without this transform all channels have one common order (see the pruner `attention`), which is better:
    clients start from one model, so channel i is the same channel on all of them, and moving it by each
    client's own order averages channels that do not correspond.

    For the direction see DESIGN.md section 6, decision 1. The client's model w + delta moves as a whole, so
    the result is again a difference to w. Updates without attention scores (from round two on) do not change.

    `rest` fills the last positions, for the channels that the client cut away: with those channels of w,
    `moved` there (the client's whole model then computes the same as before), or with what w has there,
    `in-place` (Algorithm 2, lines 5 and 6, literally: some channels of w then occur twice).
    """
    if rest not in ("moved", "in-place"):
        raise ValueError(f"rest is 'moved' or 'in-place', not '{rest}'")
    return partial(match_attention, in_place=rest == "in-place")


def match_attention(
    update: GlobalUpdate, around: TransformContext, *, in_place: bool = False
) -> GlobalUpdate:
    """Move the channels of an update to the positions of their rank.

    If the model's channels were ranked after this update was trained (a slow device in buffered rounds),
    only the update moves: the model has its order already.
    """
    channel_map = around.channel_map
    scores = update.source.groups.get("attention")
    if not scores:
        return update
    groups, ranked = channel_map.groups, group_scores(scores, channel_map).items()
    order = deltas.checked_order({name: ranking(s, groups[name].multiple) for name, s in ranked}, channel_map)
    delta = deltas.as_deltas(update.delta, channel_map).with_order(order)
    coverage, held = update.coverage.with_order(order), update.held.with_order(order)
    if not around.ordered:
        delta = deltas.ReorderedModelDeltas(
            around.params, deltas.RestrictedDeltas(delta, coverage), order, channel_map
        )
        delta = deltas.RestrictedDeltas(delta, coverage) if in_place else delta
    return replace(update, delta=delta, coverage=coverage, held=held)


def norm_ratios(
    updates: Sequence[GlobalUpdate], weights: NDArray[np.float64], before: Arrays, after: Arrays
) -> dict[str, float]:
    """The norm of each weight matrix or kernel of `after`, over the weighted mean of the clients' norms.

    It is 1 if all clients agree. It is far lower if they average channels that do not correspond.
    """
    ratios = {}
    for name, start in before.items():
        if start.ndim < 2:
            continue
        norms = [_norm(start, update, name) for update in updates]
        expected = float(np.dot(weights, norms))
        if expected > 0:
            ratios[name] = float(np.linalg.norm(after[name])) / expected
    return ratios


def _norm(start: Array, update: GlobalUpdate, name: str) -> float:
    """The Frobenius norm of one parameter of a client's model in global coordinates."""
    squares = 0.0
    for first, last in blocks.row_blocks(start.shape):
        rows = blocks.as_rows(start)[first:last].astype(np.float64)
        squares += float(np.square(rows + blocks.as_rows(rows_of(update.delta, name, first, last))).sum())
    return math.sqrt(squares)


@TransformTraits(is_single=True)
def fill_with_global(*, normalised: bool = True, decay: float = 0.0, norm_decay: float = 0.0) -> Transform:
    """Fill coordinates that a client lacks from the global model (ATTENDING, Algorithm 2 line 6; R2SP).

    They then count as trained without change, at the client's full weight, which shortens the steps of
    channels that few devices hold. Behind a normalisation a channel counts as much as the others, however
    short its steps were. With `normalised = false` convolutions and normalisations are not filled in networks
    that have normalisations; other layers are.

    Short steps end where long ones do: in many rounds the channels that few devices hold fit the data of
    these devices, and the whole model falls below its smaller tiers. With `decay` > 0 every round takes this
    part of a filled coordinate away, times the square of the share of clients that lack it (`decay_missing`).
    In networks of which `normalised = false` leaves layers unfilled `norm-decay` is that of normalisations'
    weights and biases, and nothing else decays: the size of what comes before a normalisation does not count.
    """
    for name, value in (("decay", decay), ("norm-decay", norm_decay)):
        if not 0 <= value < 1:
            raise ValueError(f"{name} must be at least 0 and below 1")
    return partial(cover_missing, normalised=normalised, decay=decay, norm_decay=norm_decay)


def cover_missing(
    update: GlobalUpdate,
    around: TransformContext,
    *,
    normalised: bool = True,
    decay: float = 0.0,
    norm_decay: float = 0.0,
) -> GlobalUpdate:
    """Cover what `fill_with_global` fills, unless the client trained nothing and sent only scores.

    Arrays of which the client trains no channel are frozen there, not lacking.
    """
    if not update.source.groups["model"]:
        return update
    full, sent = deltas.full_coverage(around.channel_map), frozenset(update.source.groups["model"])
    norms, convolutions = normalised_layers(around.channel_map)
    unfilled = frozenset[str]() if normalised else norms | convolutions
    own = update.coverage

    def fill(names: Set[str]) -> deltas.UpdateCoverage:
        def index_set(name: str) -> IndexSet:
            return (full if name in names else own).index_set(name)

        return deltas.UpdateCoverage(around.channel_map, index_set)

    filled = fill(sent - unfilled)
    if unfilled:
        return replace(update, coverage=filled, decaying=fill(sent & norms), decay=norm_decay)
    return replace(update, coverage=filled, decay=decay)


def normalised_layers(channel_map: ChannelMap) -> tuple[frozenset[str], frozenset[str]]:
    """The parameters of normalisations, and of convolutions; none in a network without normalisations.

    A normalisation's weight has one axis, a linear layer's two, a convolution's more.
    """
    weights = {name.rpartition(".")[0]: name for name in channel_map.parameters if name.endswith(".weight")}
    axes = {layer: len(channel_map.parameters[name].shape) for layer, name in weights.items()}
    found = {name: axes.get(name.rpartition(".")[0], LINEAR) for name in channel_map.parameters}
    norms = frozenset(name for name, count in found.items() if count == NORMALISATION)
    convolutions = frozenset(name for name, count in found.items() if count > LINEAR)
    return norms, convolutions if norms else frozenset()


@TransformTraits(scales=True, is_single=True)
@dataclass(frozen=True)
class DiscountStaleness:
    """Scale each update by (1 + s) ** -exponent, where s is the number of aggregations since its model.

    FedBuff adds up the discounted updates of a buffer of K and divides by K, so a late update shortens the
    step. Discounts used as weights would be divided by their sum, and a buffer of equally late updates would
    step as far as a fresh one; so this is a transform, and with the weighting `equal` the mean is the
    paper's. A coordinate's sum is divided by its number of holders. Name it before transforms that move
    channels: the move is no part of the step. 0.5 is the paper's exponent, 0 changes nothing.
    """

    exponent: float = 0.5

    def __post_init__(self) -> None:
        if not self.exponent >= 0:
            raise ValueError("exponent must be at least 0")

    def __call__(self, update: GlobalUpdate, around: TransformContext) -> GlobalUpdate:
        factor = (1 + update.source.metrics.get("staleness", 0)) ** -self.exponent
        if factor == 1:
            return update
        return replace(
            update, delta=deltas.ScaledDeltas(deltas.as_deltas(update.delta, around.channel_map), factor)
        )


TRANSFORMS: TraitRegistry[Callable[..., Transform], TransformTraits] = TraitRegistry(
    "transform",
    TransformTraits,
    {
        "attention-matching": attention_matching,
        "clip-to-median-norm": norm_scaling.ClipToMedianNorm,
        "discount-staleness": DiscountStaleness,
        "fill-with-global": fill_with_global,
        "normalise-steps": NormaliseSteps,
        "scale-to-mean-norm": norm_scaling.ScaleToMeanNorm,
    },
)
