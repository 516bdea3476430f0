"""The rule of a parameter group next to the model (DESIGN.md section 3).

SCAFFOLD's control, IGFL's last step, FedMix's averaged data, FedGH's prototypes: the rule of each group says
what every device receives, what it may send back, and how the server combines what comes back.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from edge_client.pruning.index_sets import LazySlice
from edge_client.system.plugins import Traits
from edge_server.strategy.aggregation.blocks import lazy_arrays
from edge_server.strategy.explanations import Observed
from edge_server.strategy.selection.interface import RoundResult
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays, Groups, kind_of
from schemas.values import ModelSpec

Shape = tuple[int | None, ...]  # of an array that a device may send; None: any number from 1 to `MAX_ROWS`
MAX_ROWS = 64
Tiers = Callable[[], Iterable[SubModelSpec]]  # all tiers' sub-models, computed when a rule asks for them


def zeros(params: Arrays) -> Arrays:
    kinds = {name: kind_of(params, name) for name in params}
    return lazy_arrays(
        kinds, lambda name, start, stop: np.zeros((stop - start, *kinds[name][1][1:]), kinds[name][0])
    )


@dataclass(frozen=True, eq=False)
class FoldedGroup:
    """The server's arrays of the group after a round, and the global model (unchanged by most rules)."""

    held: Arrays
    params: Arrays


@dataclass(frozen=True)
class GroupTraits(Traits):
    """What a rule takes on trust, in words, and what it needs of single updates.

    `bounds_examples`: its sums are over examples, each bounded by the option `clip`, and get noise.
    `ignores_models`: combines nothing of the size of a model that devices send. `of_server`: the server
    computes it from the global model or from the tiers. `is_sum`: needs no more than its sum over devices.
    """

    trusts: str = ""
    ignores_models: bool = False
    of_server: bool = False
    is_sum: bool = False
    bounds_examples: bool = False


class GroupRule(Protocol):
    """One group: `held` are the server's arrays of it, in global coordinates; {} at first.

    `name` is the group's; `downlink` and `uplink` say whether devices receive and send it. `bounded` names
    the arrays sent that are no parameters but whose norms are bounded by the other devices' all the same;
    honest norms vary `spread` times as much as those of trained weights. A rule that `owns` gives sub-models
    arrays in place of the global model's; one that is `measured` is sent in the last round alone, by
    objectives that measure. What is sent is of the type `dtype`, up to `max_abs` if that is stated; one that
    `repeats` may be sent again in another round with the same bytes.
    """

    name: ClassVar[str]
    downlink: ClassVar[bool] = True
    uplink: ClassVar[bool] = True
    bounded: ClassVar[frozenset[str]] = frozenset()
    spread: ClassVar[float] = 1.0
    owns: bool = False
    measured: ClassVar[bool] = False
    dtype: ClassVar[np.dtype[Any]] = np.dtype(np.float32)
    max_abs: ClassVar[float | None] = None
    repeats: ClassVar[bool] = False

    def start(self, params: Arrays) -> Arrays:
        return {}

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple) -> Arrays:
        """What a device with this sub-model receives: arrays named after a parameter are cut like it."""
        return LazySlice(held, spec, channel_map)

    def own(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """Arrays that this sub-model has in place of the global model's, in global coordinates."""
        return {}

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        """The shapes that a device sends, given those of its sub-model's parameters (the default)."""
        return model

    def check(self, sent: Arrays, examples: int) -> None:
        """Raise `PeerError` for arrays that no device can have measured on this number of examples.

        Shapes have been checked, and all numbers are finite.
        """
        return

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """Combine the round's updates; `result.after` is the new model as earlier rules left it."""
        return FoldedGroup(held, result.after)

    def observations(self, held: Arrays) -> Observed:
        """What the run's history keeps of the group after a round."""
        return {}


def cut_groups(
    rules: Sequence[GroupRule],
    params: Arrays,
    groups: Groups,
    spec: SubModelSpec,
    channel_map: ChannelMap,
    tiers: Tiers = tuple,
) -> Groups:
    """The model and every downlink group that is not empty, cut for a sub-model."""
    cut = {"model": LazySlice(own_params(rules, params, groups, spec, channel_map), spec, channel_map)}
    sent = (rule for rule in rules if rule.downlink)
    down = {rule.name: rule.down(groups.get(rule.name, {}), spec, channel_map, tiers) for rule in sent}
    return {**cut, **{name: arrays for name, arrays in down.items() if arrays}}


def own_params(
    rules: Sequence[GroupRule], params: Arrays, groups: Groups, spec: SubModelSpec, channel_map: ChannelMap
) -> Arrays:
    """The model that this sub-model is cut from: the global one, with what the sub-model has of its own."""
    own = [rule.own(groups.get(rule.name, {}), spec, channel_map) for rule in rules]
    if not any(own):
        return params
    return {**params, **{name: array for arrays in own for name, array in arrays.items()}}


def fold_groups(
    rules: Sequence[GroupRule], groups: Groups, result: RoundResult
) -> tuple[Groups, RoundResult]:
    """Every group after the round, and the result with the model that the last rule left."""
    after = {}
    for rule in rules:
        folded = rule.fold(groups.get(rule.name, {}), result)
        after[rule.name] = folded.held
        result = replace(result, after=folded.params)
    return after, result
