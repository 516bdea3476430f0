"""The sums that one device has sent, and for which tiers they count.

The features of a tier whose last layer alone is cut are some of the features of wider tiers, whose sums count
for it too: their block of both matrices. Where more is cut, a tier's features are others, and its devices'
sums are all that it has.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from edge_client.pruning.index_sets import submodel_index_set, to_array
from edge_client.training import feature_sums
from edge_client.training.feature_sums import GRAM, PARTS, SQUARES, TARGETS
from edge_server.strategy.groups.least_squares import Features, Sums
from edge_server.strategy.groups.statistics import FULL, tier_key
from schemas.errors import PeerError, Reason
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays

HELD, FEATURES, TESTED = "sums", "features", "tested"
"""The server's arrays are `sums/{device}/{tier}/{head}/...`, the heads `{tier}/{parameter}`, and what tests
of devices have shown: `tested/{device}` with the fields of `Tested`, 1 for a suspect, the weight."""
Rows = tuple[int | None, ...] | None
"""The place of each class in an earlier run, None for a new one; None in all if the classes are the same."""
ROUNDING = 1e-6  # Relative tolerance of sums in double precision of features in single precision


@dataclass(frozen=True, eq=False)
class DeviceSums:
    """One device's sums, of the head's features that its tier has: columns `features` [D] of its weight.

    They count with the `weight`.
    """

    device: str
    tier: str
    head: str
    arrays: Mapping[str, Any]
    weight: float = 1.0

    @cached_property
    def features(self) -> Features:
        return np.asarray(self.arrays[FEATURES], np.intp)

    def parts(self) -> list[Sums]:
        """The sums of both parts of the examples, read anew each time: together they may be large."""
        targets, squares = np.asarray(self.arrays[TARGETS]), np.asarray(self.arrays[SQUARES])
        rows, empty = targets.shape[1], np.zeros((0, 0))
        packed = np.asarray(self.arrays[GRAM]) if GRAM in self.arrays else None
        grams = [empty if packed is None else feature_sums.unpack(packed[p], rows) for p in range(PARTS)]
        whole = [Sums(grams[part], targets[part], float(squares[part])) for part in range(PARTS)]
        return whole if self.weight == 1 else [part.with_weight(self.weight) for part in whole]

    @property
    def examples(self) -> float:
        return examples_of(self.arrays)

    def parts_for(self, features: Features) -> list[Sums]:
        """The parts for a tier with these features, which are among its own."""
        if np.array_equal(features, self.features):
            return self.parts()
        place = {column: row for row, column in enumerate(self.features.tolist())}
        rows = np.array([place[column] for column in features.tolist()], np.intp)
        return [part.of_features(rows) for part in self.parts()]

    def with_classes(self, rows: Rows) -> "DeviceSums":
        """The sums with a column for each class, 0 for one that was not there."""
        if rows is None:
            return self
        old = np.asarray(self.arrays[TARGETS])
        empty = np.zeros(old.shape[:2])
        targets = np.stack([empty if row is None else old[:, :, row] for row in rows], 2)
        return replace(self, arrays={**self.arrays, TARGETS: targets})

    def as_arrays(self) -> dict[str, Any]:
        path = f"{HELD}/{self.device}/{self.tier}/{self.head}"
        return {f"{path}/{name}": array for name, array in self.arrays.items()}


def held_sums(held: Arrays) -> list[DeviceSums]:
    """The sums that the server holds, sorted by device."""
    weights = {name.partition("/")[2]: held[name][-1] for name in held if name.startswith(f"{TESTED}/")}
    places: dict[tuple[str, str, str], dict[str, str]] = {}
    for name in held:
        if name.startswith(f"{HELD}/"):
            _, device, tier, head, array = name.split("/")
            places.setdefault((device, tier, head), {})[array] = name
    return [
        DeviceSums(*place, {array: held[name] for array, name in names.items()}, weights.get(place[0], 1.0))
        for place, names in sorted(places.items())
    ]


def sums_of_tier(
    head: str, spec: SubModelSpec, channel_map: ChannelMap, device: str = "", arrays: Arrays | None = None
) -> DeviceSums:
    """Sums of the features that a sub-model has."""
    layout = channel_map.parameters[f"{head}.weight"]
    features = to_array(submodel_index_set(layout, spec).axes[1])
    return DeviceSums(
        device, tier_key(spec, channel_map), head, {**(arrays or {}), FEATURES: features.astype(np.int64)}
    )


def examples_of(arrays: Mapping[str, Any]) -> float:
    """The examples that were summed: the squares of the ones, or without them the examples of all classes."""
    ones = arrays[GRAM] if GRAM in arrays else arrays[TARGETS]
    return float(np.asarray(ones)[:, -1].sum())


def has_features_of(sums: DeviceSums, tier: DeviceSums, channel_map: ChannelMap) -> bool:
    """Whether the features of a tier are some of those that were summed: all before the head is alike."""
    if sums.tier == tier.tier:
        return True
    if len(sums.features) > feature_sums.MAX_FEATURES or not set(tier.features.tolist()) <= set(
        sums.features.tolist()
    ):
        return False
    last = last_groups(channel_map, tier.head)
    return _trunk(sums.tier, channel_map, last) == _trunk(tier.tier, channel_map, last)


def _trunk(tier: str, channel_map: ChannelMap, last: frozenset[str]) -> dict[str, int]:
    """The channels that a tier keeps of each group, without those of the last layer."""
    whole = {name: group.channels for name, group in channel_map.groups.items()}
    if tier != FULL:
        counts = (item.rpartition(":") for item in tier.split(","))
        whole |= {name: int(count) for name, _, count in counts}
    return {name: count for name, count in whole.items() if name not in last}


def last_groups(channel_map: ChannelMap, head: str) -> frozenset[str]:
    """The groups whose channels go into the head and nowhere else, so that cutting them changes no others.

    Not those with a normalisation over channels: of such layers each output depends on all.
    """
    names, out = channel_map.parameters, f"{head}.weight"
    used: dict[str, set[str]] = {group: set() for group in channel_map.groups}
    mixed = set[str]()
    for name, layout in names.items():
        layer, _, kind = name.rpartition(".")
        over_channels = kind == "weight" and len(layout.shape) == 1 and f"{layer}.running_mean" not in names
        for axis, segments in layout.axes.items():
            groups = {segment.group for segment in segments if segment.group}
            if over_channels or (axis > 0 and name != out):
                mixed |= groups
            if axis == 1 and name == out:
                for group in groups:
                    used[group].add(name)
    return frozenset(group for group, uses in used.items() if uses and group not in mixed)


def check_sums(sums: Sums) -> None:
    """Raise `PeerError` for sums of no features: by Cauchy and Schwarz no product exceeds the squares."""
    counts = sums.targets[-1]
    if not sums.gram.size:
        if sums.squares < 0 or bool((counts < 0).any()):
            raise impossible("the classes have fewer than no examples")
        return
    squares, count = np.diag(sums.gram), sums.examples
    bound = np.sqrt(np.outer(np.abs(squares), np.abs(squares)))
    if count < 0 or count != np.floor(count) or bool((squares < 0).any()):
        raise impossible("the squares of features have negative sums")
    if bool((np.abs(sums.gram) > bound * (1 + ROUNDING) + ROUNDING).any()):
        raise impossible("products of features exceed their squares")
    most = np.sqrt(squares * max(0.0, sums.squares))[:, None]
    if bool((np.abs(sums.targets) > most * (1 + ROUNDING) + ROUNDING).any()):
        raise impossible("products of features and targets exceed their squares")


def check_clipped(sums: Sums) -> None:
    """Raise `PeerError` for sums of features beyond length 1, as no clipped ones are."""
    features = len(sums.targets) - 1
    squares = np.trace(sums.gram[:-1, :-1]) if sums.gram.size else sums.squares * features
    counts, means = sums.targets[-1], sums.targets[:-1]
    limit = max(0.0, sums.examples) * (1 + ROUNDING) + ROUNDING
    if squares > limit or bool((np.linalg.norm(means, axis=0) > counts * (1 + ROUNDING) + ROUNDING).any()):
        raise impossible("features are longer than the clip")


def impossible(detail: str) -> PeerError:
    return PeerError(detail, reason=Reason.OUT_OF_BOUNDS)
