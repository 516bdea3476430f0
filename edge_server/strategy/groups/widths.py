"""The sub-models of smaller tiers within a device's own (FjORD, Horvath et al. 2021)."""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import cast

import numpy as np

from edge_server.strategy.groups.rule import GroupRule, GroupTraits, Tiers
from schemas.strategy import Component
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays

# The work of a device that trains smaller widths in some of its steps, and the epochs that make up for it.

OBJECTIVE = "ordered-dropout"


def own_probability(objectives: Iterable[Component]) -> float | None:
    """The probability of a step at the device's own width; None where the recipe states none."""
    options = (objective.options for objective in objectives if objective.name == OBJECTIVE)
    return next((cast(float, found["own"]) for found in options if "own" in found), None)


def step_share(own: float, macs: int, smaller: Sequence[int]) -> float:
    """Multiply-accumulates of a mean step over those of a step at the device's own width.

    `own` is the probability of a step at the device's own width, of `macs`; the widths of `smaller` share the
    rest evenly.
    """
    return own + (1 - own) * fmean(smaller) / macs if smaller else 1.0


def equal_work_epochs(number: int, epochs: int, share: float) -> int:
    """The epochs of round `number` that make the work of `epochs` whole ones, at `share` of it per step.

    With equal `epochs` and `share` in all rounds, their sum over the rounds so far is the largest that does
    not exceed that work. In a single round they can exceed it by less than one epoch.
    """
    return _until(number, epochs, share) - _until(number - 1, epochs, share)


def _until(rounds: int, epochs: int, share: float) -> int:
    return math.floor(rounds * epochs / share + 1e-9)


@GroupTraits(ignores_models=True, of_server=True)
class Widths(GroupRule):
    """The channels of every smaller tier, for devices that train all of these tiers; sent down only.

    `{number}/{group}` has the kept channels of the `number`-th smaller sub-model, smallest first, as indices
    into the device's own channels [C]. Groups that it shares with the device's sub-model are left out, and so
    are tiers that keep a channel that the device lacks.
    """

    name = "widths"
    uplink = False

    def down(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap, tiers: Tiers = tuple) -> Arrays:
        smaller = [found for _, found in _smaller(spec, channel_map, tiers())]
        ascending = sorted(smaller, key=lambda found: _count(found, spec, channel_map))
        return {
            f"{number}/{group}": np.array(kept, np.int32)
            for number, found in enumerate(ascending)
            for group, kept in found.items()
        }


def smaller_tiers(
    spec: SubModelSpec, channel_map: ChannelMap, tiers: Iterable[SubModelSpec]
) -> list[SubModelSpec]:
    """The different tiers whose channels are a smaller part of the sub-model's."""
    return [tier for tier, _ in _smaller(spec, channel_map, tiers)]


def _smaller(
    spec: SubModelSpec, channel_map: ChannelMap, tiers: Iterable[SubModelSpec]
) -> list[tuple[SubModelSpec, dict[str, tuple[int, ...]]]]:
    """These tiers, each with its channels as positions in the sub-model."""
    inner = [(tier, _within(tier, spec, channel_map)) for tier in tiers]
    return list({tuple(sorted(found.items())): (tier, found) for tier, found in inner if found}.values())


def _within(tier: SubModelSpec, spec: SubModelSpec, channel_map: ChannelMap) -> dict[str, tuple[int, ...]]:
    """The tier's channels as positions in the sub-model; {} if they are no smaller part of it."""
    found: dict[str, tuple[int, ...]] = {}
    for name, group in channel_map.groups.items():
        own = {channel: place for place, channel in enumerate(spec.indices(name, group.channels))}
        kept = tier.indices(name, group.channels)
        if not own.keys() >= set(kept):
            return {}
        if len(kept) < len(own):
            found[name] = tuple(sorted(own[channel] for channel in kept))
    return found


def _count(found: Mapping[str, Sequence[int]], spec: SubModelSpec, channel_map: ChannelMap) -> int:
    groups = channel_map.groups.items()
    return sum(len(found[name]) if name in found else spec.count(name, g.channels) for name, g in groups)
