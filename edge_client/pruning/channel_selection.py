"""Selects a sub-model's channels by attention scores: ATTENDING, algorithm 1 (eq. 7) and appendix H.

Equation 8 together with algorithm 2 would prune the strongest channels. Here the ceil(channels * ratio)
channels with the lowest attention are pruned in each group.
"""

import math
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.models.registry import ModelEntry
from schemas.errors import ConfigError, InvariantError, nearest
from schemas.strategy import PersonalPruning
from schemas.submodel import ChannelGroup, ChannelMap, SubModelSpec

Scores = Mapping[str, NDArray[Any]]
Ratio = float | Mapping[str, float]  # for all targets, or one per glob of layers (ATTENDING, appendix H)
NOISE = 1e-9  # tolerance: 0.7 * 10 is slightly above 7 and must not prune another channel


def kept_count(channels: int, ratio: float, multiple: int = 1) -> int:
    """The number of channels kept at a pruning ratio: whole blocks of `multiple`, at least one."""
    blocks = channels // multiple
    return multiple * max(1, blocks - math.ceil(blocks * ratio - NOISE))


def group_ratios(entry: ModelEntry, ratio: Ratio, channel_map: ChannelMap) -> dict[str, float]:
    """The pruning ratio of every group among the network's targets, zeros included.

    A number is one of the paper's levels, or applies to all targets; a mapping gives a ratio per glob, of
    which the first match counts, and 0 for other groups. Ratios are reduced so that the entry's multiple of
    channels is left. Raises `ConfigError` for a glob without a match.
    """
    targets = _targets(entry, channel_map)
    if isinstance(ratio, Mapping):
        globs = ratio
    else:
        exact = (globs for level, globs in entry.stage_ratios.items() if math.isclose(level, ratio))
        globs = next(exact, dict.fromkeys(entry.targets, ratio))
    for glob, value in globs.items():
        if not 0 <= value < 1:
            raise ConfigError(f"pruning ratio {value} of {glob!r} is not in [0, 1)")
        if isinstance(ratio, Mapping) and not any(_matches(glob, *item) for item in targets.items()):
            raise ConfigError(f"no channels to prune match {glob!r}{nearest(glob, targets)}")
    return {
        name: round_ratio(_first(globs, name, group), group, entry.multiple)
        for name, group in targets.items()
    }


def round_ratio(ratio: float, group: ChannelGroup, multiple: int) -> float:
    """The ratio that leaves a multiple of channels: as many as `ratio` does or more, at most all."""
    if multiple == 1:
        return ratio
    step = math.lcm(multiple, group.multiple)
    kept = min(group.channels, step * math.ceil(_count_kept(group, ratio) / step))
    return (group.channels - kept) / group.channels


def mean_ratio(ratio: Ratio) -> float:
    """A ratio as a single number: the mean over its globs (ATTENDING, eq. 10)."""
    if isinstance(ratio, Mapping):
        return sum(ratio.values()) / len(ratio) if ratio else 0.0
    return ratio


def group_scores(layer_scores: Scores, channel_map: ChannelMap) -> dict[str, NDArray[np.float32]]:
    """Scores per group [C]: the mean over its layers that have scores, one per output channel.

    Raises `InvariantError` for scores that do not fit their layer.
    """
    found: dict[str, list[NDArray[Any]]] = {}
    for layer, scores in layer_scores.items():
        for name, part in _parts(layer, scores, channel_map):
            found.setdefault(name, []).append(part)
    return {name: np.mean(parts, axis=0, dtype=np.float32) for name, parts in found.items()}


def ranking(scores: NDArray[Any], multiple: int = 1) -> tuple[int, ...]:
    """Channels by descending score, ties by index; blocks of `multiple` stay whole and rank by their mean."""
    blocks = np.asarray(scores, np.float64).reshape(-1, multiple).mean(axis=1)
    starts = np.argsort(-blocks, kind="stable") * multiple
    return tuple((starts[:, None] + np.arange(multiple)).ravel().tolist())


def personal_spec(scores: Scores, ratios: Mapping[str, float], channel_map: ChannelMap) -> SubModelSpec:
    """The channels that a client keeps, by descending score (algorithm 1).

    Groups at ratio 0 are included, as attention matching needs their order. Raises `InvariantError` for a
    group without scores.
    """
    return SubModelSpec(kept={name: _best(name, scores, p, channel_map) for name, p in ratios.items()})


def best_spec(scores: Scores, ratios: Mapping[str, float], channel_map: ChannelMap) -> SubModelSpec:
    """The best channels of every group, in ascending order; the leading ones of a group without scores.

    Whole groups are omitted.
    """
    kept = {}
    for name, ratio in ratios.items():
        group = channel_map.groups[name]
        order = ranking(scores.get(name, np.zeros(group.channels)), group.multiple)
        count = kept_count(group.channels, ratio, group.multiple)
        if count < group.channels:
            kept[name] = tuple(sorted(order[:count]))
    return SubModelSpec(kept=kept)


def shape_spec(spec: SubModelSpec, personal: PersonalPruning | None, channel_map: ChannelMap) -> SubModelSpec:
    """A sub-model of the shapes that a device trains of the sub-model `spec`, whichever channels it keeps."""
    if personal is None or personal.scored_by is None:
        return spec
    return prefix_spec(personal.ratios, channel_map)


def prefix_spec(ratios: Mapping[str, float], channel_map: ChannelMap) -> SubModelSpec:
    """The leading channels of every group; the empty spec, which is the full model, if all ratios are 0."""
    groups = {name: _group(name, channel_map) for name in ratios}
    kept = {name: _count_kept(group, ratios[name]) for name, group in groups.items()}
    return SubModelSpec(kept={n: count for n, count in kept.items() if count < groups[n].channels})


def _targets(entry: ModelEntry, channel_map: ChannelMap) -> dict[str, ChannelGroup]:
    groups = channel_map.groups.items()
    return {n: group for n, group in groups if any(_matches(glob, n, group) for glob in entry.targets)}


def _matches(glob: str, name: str, group: ChannelGroup) -> bool:
    return any(fnmatchcase(candidate, glob) for candidate in (name, *group.layers))


def _first(globs: Mapping[str, float], name: str, group: ChannelGroup) -> float:
    return next((ratio for glob, ratio in globs.items() if _matches(glob, name, group)), 0.0)


def _parts(layer: str, scores: NDArray[Any], channel_map: ChannelMap) -> list[tuple[str, NDArray[Any]]]:
    """Split a layer's scores by the groups of its output channels (several behind a concatenation)."""
    layout = channel_map.parameters.get(f"{layer}.weight")
    if layout is None or np.shape(scores) != layout.shape[:1]:
        raise InvariantError(f"scores of shape {np.shape(scores)} do not fit layer {layer!r}")
    parts, start = [], 0
    for segment in layout.axes.get(0, ()):
        if segment.group is not None:
            own = scores[start : start + segment.positions].reshape(segment.channels, segment.repeat)
            parts.append((segment.group, own.mean(axis=1)))
        start += segment.positions
    return parts


def _group(name: str, channel_map: ChannelMap) -> ChannelGroup:
    if name not in channel_map.groups:
        raise InvariantError(f"no channel group is named {name!r}{nearest(name, channel_map.groups)}")
    return channel_map.groups[name]


def _count_kept(group: ChannelGroup, ratio: float) -> int:
    return kept_count(group.channels, ratio, group.multiple)


def _best(name: str, scores: Scores, ratio: float, channel_map: ChannelMap) -> tuple[int, ...]:
    group = _group(name, channel_map)
    found = np.asarray(scores.get(name, ()))
    if found.shape != (group.channels,):
        raise InvariantError(f"group {name!r}: expected {group.channels} scores, got shape {found.shape}")
    return ranking(found, group.multiple)[: _count_kept(group, ratio)]
