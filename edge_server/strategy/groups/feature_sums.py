"""Heads in one round: devices send sums of their features, the server adds them and solves (Fani et al. 2024,
Fed3R; He et al. 2025, AFL; Legate et al. 2023, FedNCM).

The server holds the sums of every device, so that a device can send others later, or be taken out: a head is
always that of the sums held, to the bit. Each tier has a head of its own. The features of a tier whose last
layer alone is cut are some of the features of wider tiers, whose sums count for it too: their block of both
matrices. Where more is cut, a tier's features are others, and its devices' sums are all that it has.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal

import numpy as np

from edge_client.pruning.index_sets import submodel_index_set, to_array
from edge_client.training import feature_sums
from edge_client.training.feature_sums import GRAM, GROUP, MEANS_GROUP, PARTS, SQUARES, TARGETS
from edge_server.strategy.aggregation.array_stores import store_arrays
from edge_server.strategy.aggregation.updates import ClientUpdate, sources_of
from edge_server.strategy.explanations import Observed
from edge_server.strategy.groups import least_squares
from edge_server.strategy.groups.least_squares import Features, Head, Sums, Tested, total_of, total_parts
from edge_server.strategy.groups.rule import FoldedGroup, GroupRule, GroupTraits, Shape
from edge_server.strategy.groups.statistics import FULL, arrays_of_tier, tier_key
from edge_server.strategy.selection.interface import RoundResult
from schemas.errors import PeerError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Arrays
from schemas.values import ModelSpec, Reason

HELD, FEATURES, TESTED = "sums", "features", "tested"
"""The server's arrays are `sums/{device}/{tier}/{head}/...`, the heads `{tier}/{parameter}`, and what tests
of devices have shown: `tested/{device}` with the fields of `Tested`, 1 for a suspect, the weight."""
MAX_WORK = 1e12  # Devices times the cube of features up to which devices are tested on each other
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
        return whole if self.weight == 1 else [part.weighted(self.weight) for part in whole]

    @property
    def examples(self) -> float:
        return _examples_of(self.arrays)

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


@GroupTraits(ignores_models=True, is_sum=True)
class HeadRule(GroupRule):
    """What both rules have in common: they differ in how a head is solved.

    Without `keep` the sums are not held, and tiers have the global model's head. With `earlier` a run that
    starts from the model of another begins with the sums that this run holds.
    """

    name: ClassVar[str] = GROUP
    downlink: ClassVar[bool] = False
    dtype: ClassVar[Any] = np.dtype(np.float64)
    max_abs: ClassVar[float] = 1e15
    repeats: ClassVar[bool] = True
    gram: ClassVar[bool] = True

    def __init__(self, *, keep: bool = True, earlier: bool = True) -> None:
        self.owns, self.continues = keep, keep and earlier

    def solve(self, parts: Sequence[Sums], *, bias: bool) -> Head:
        """The head of the sums of both parts of all examples."""
        raise NotImplementedError

    def test_devices(self, sums: Sequence[DeviceSums], channel_map: ChannelMap) -> dict[str, Any]:
        """What tests of devices on each other show, as held: none where nothing follows from their sums."""
        return {}

    def observations(self, held: Arrays) -> Observed:
        """By how much each device's sums cost the others, and why which of them are suspects."""
        tested = {name.partition("/")[2]: held[name] for name in held if name.startswith(f"{TESTED}/")}
        if not tested:
            return {}
        suspects = {name: _suspicion(about) for name, about in tested.items() if about[-2]}
        return {
            "costs": {name: float(about[0] - about[1]) for name, about in tested.items()},
            "suspects": suspects,
        }

    def own(self, held: Arrays, spec: SubModelSpec, channel_map: ChannelMap) -> Arrays:
        """The head of the tier with this sub-model; the full network's is the global model's.

        A tier without devices has one as well, if a wider one has its features.
        """
        tier = tier_key(spec, channel_map)
        if tier == FULL:
            return {}
        if own := arrays_of_tier(held, spec, channel_map):
            return own
        sums = held_sums(held)
        if not sums:
            return {}
        wanted = sums_of_tier(sums[0].head, spec, channel_map)
        return self.head_for(wanted, sums, channel_map)

    def shapes(self, model: Mapping[str, Shape], network: ModelSpec) -> Mapping[str, Shape]:
        """The sub-model's sums; raises `ConfigError` for a network without a head."""
        from edge_client.models.header import header_of

        head = header_of(network)
        outputs, features = model[f"{head}.weight"]
        assert features is not None
        rows = feature_sums.width(features)
        sums: dict[str, Shape] = {TARGETS: (PARTS, rows, outputs), SQUARES: (PARTS,)}
        if self.gram:
            sums[GRAM] = (PARTS, feature_sums.packed_size(rows))
        return {f"{head}/{name}": shape for name, shape in sums.items()}

    def check(self, sent: Arrays, examples: int) -> None:
        """As many examples as the update states, and sums that some features have."""
        arrays = {name.rpartition("/")[2]: array for name, array in sent.items()}
        parts = DeviceSums("", "", "", arrays).parts()
        for part in parts:
            _check_sums(part)
        counted = sum(part.examples for part in parts)
        if counted != examples:
            raise _impossible(f"the sums are of {counted:g} examples, the update of {examples}")

    def fold(self, held: Arrays, result: RoundResult) -> FoldedGroup:
        """The sums held with those of this round, and their heads; none once devices have trained.

        A device's sums take the place of its earlier ones.
        """
        sources = sources_of(result.updates)
        if any(source.groups["model"] for source in sources):
            return FoldedGroup({}, result.after)
        senders = [source for source in sources if source.groups.get(self.name)]
        sent = [_sums_of(source, source.groups[self.name], result.channel_map) for source in senders]
        if not sent:
            return FoldedGroup(held, result.after)
        if not self.owns:
            folded = self.with_heads(sent, result.after, result.channel_map)
            tested = {name: array for name, array in folded.held.items() if name.startswith(f"{TESTED}/")}
            return FoldedGroup(tested, folded.params)
        devices = {sums.device for sums in sent}
        kept = [sums for sums in held_sums(held) if sums.device not in devices]
        sums = sorted([*kept, *sent], key=lambda each: each.device)
        folded = self.with_heads(sums, result.after, result.channel_map)
        return FoldedGroup(store_arrays(folded.held, result.keep), folded.params)

    def continue_sums(
        self, earlier: Arrays, rows: Rows, params: Arrays, channel_map: ChannelMap
    ) -> FoldedGroup:
        """What another run of the same network held, with its heads; nothing of sums of another kind."""
        sums = [each.with_classes(rows) for each in held_sums(earlier)]
        if not sums or any((GRAM in each.arrays) != self.gram for each in sums):
            return FoldedGroup({}, params)
        return self.with_heads(sums, params, channel_map)

    def with_heads(self, sums: Sequence[DeviceSums], params: Arrays, channel_map: ChannelMap) -> FoldedGroup:
        """These sums with each tier's head, and the global model with that of its own features.

        If nobody has summed the full network's features, its head is that of the widest tier, 0 elsewhere.
        """
        held: dict[str, Any] = {name: array for each in sums for name, array in each.as_arrays().items()}
        tested = self.test_devices([replace(each, weight=1.0) for each in sums], channel_map)
        held |= {f"{TESTED}/{device}": about for device, about in tested.items()}
        sums = [replace(s, weight=float(tested[s.device][-1]) if s.device in tested else 1.0) for s in sums]
        heads = {each.tier: each for each in sums}
        solved = {tier: self.head_for(each, sums, channel_map) for tier, each in heads.items()}
        for tier, arrays in solved.items():
            if tier != FULL:
                held |= {f"{tier}/{name}": array for name, array in arrays.items()}
        widest = max(sums, key=lambda each: (each.tier == FULL, len(each.features)), default=None)
        return FoldedGroup(held, {**params, **(solved[widest.tier] if widest else {})})

    def head_for(
        self, tier: DeviceSums, sums: Sequence[DeviceSums], channel_map: ChannelMap
    ) -> dict[str, Any]:
        """The head of a tier from all sums that have its features, in global coordinates; {} of none."""
        weight, bias = f"{tier.head}.weight", f"{tier.head}.bias"
        counting = [each for each in sums if has_features_of(each, tier, channel_map)]
        if not counting:
            return {}
        parts = total_parts(each.parts_for(tier.features) for each in counting)
        head = self.solve(parts, bias=bias in channel_map.parameters)
        whole = np.zeros(channel_map.parameters[weight].shape, np.float32)
        whole[:, tier.features] = unprojected(head.weight, len(tier.features)).T
        if bias not in channel_map.parameters:
            return {weight: whole}
        return {weight: whole, bias: head.offset.astype(np.float32)}


@GroupTraits(ignores_models=True, is_sum=True)
class RidgeHead(HeadRule):
    """The head is the least-squares solution of all devices' examples together.

    `regularisation` is the penalty over the mean variance of a feature; by default the one with the least
    loss on a fifth of all examples, of which there are sums of their own. Each device is tested on all
    others (`least_squares.leave_one_out`), and the run names those whose sums cost the others much. With
    `harmful = "cap"` a suspect counts with as many examples as a usual device at most.
    """

    def __init__(
        self,
        *,
        regularisation: float | None = None,
        harmful: Literal["name", "cap"] = "name",
        keep: bool = True,
        earlier: bool = True,
    ) -> None:
        super().__init__(keep=keep, earlier=earlier)
        self._caps = harmful == "cap"
        if regularisation is not None and not 0 < regularisation < np.inf:
            raise ValueError("regularisation must be above 0")
        self._ratio = regularisation

    def solve(self, parts: Sequence[Sums], *, bias: bool) -> Head:
        """The head of all examples; scores of classes are scaled to logits."""
        fitted, held_out = parts
        whole, ratio = fitted + held_out, self._ratio_of(parts, bias=bias)
        head = least_squares.ridge(whole, ratio, bias=bias)
        one_hot = np.allclose([whole.squares, whole.targets[-1].sum()], whole.examples, rtol=ROUNDING)
        if not one_hot or not fitted.examples:
            return head
        tried = least_squares.ridge(fitted, ratio, bias=bias)
        return head.scaled(least_squares.score_scale(held_out, tried))

    def _ratio_of(self, parts: Sequence[Sums], *, bias: bool) -> float:
        return self._ratio or least_squares.choose_ratio(*parts, bias=bias)

    def test_devices(self, sums: Sequence[DeviceSums], channel_map: ChannelMap) -> dict[str, Any]:
        """Each device's sums, tested on those of all others that have its tier's features."""
        found: dict[str, Any] = {}
        for tier in {each.tier: each for each in sums}.values():
            counting = [each for each in sums if has_features_of(each, tier, channel_map)]
            work = len(counting) * feature_sums.width(len(tier.features)) ** 3
            if len(counting) < least_squares.MIN_TESTED or work > MAX_WORK:
                continue
            about = self._test_tier(tier, counting, bias=f"{tier.head}.bias" in channel_map.parameters)
            found |= {each.device: about[each.device] for each in counting if each.tier == tier.tier}
        return found

    def _test_tier(self, tier: DeviceSums, counting: Sequence[DeviceSums], *, bias: bool) -> dict[str, Any]:
        parts = {each.device: partial(each.parts_for, tier.features) for each in counting}
        ratio = self._ratio_of(total_parts(read() for read in parts.values()), bias=bias)
        tested, suspects = least_squares.leave_one_out(parts, ratio, bias=bias)
        usual = float(np.median([each.examples for each in counting]))
        examples = {each.device: each.examples for each in counting}

        def as_held(device: str, about: Tested) -> Any:
            is_suspect = device in suspects
            weight = min(1.0, usual / max(1.0, examples[device])) if is_suspect and self._caps else 1.0
            return np.array([*astuple(about), is_suspect, weight], np.float64)

        return {device: as_held(device, about) for device, about in tested.items()}


@GroupTraits(ignores_models=True, is_sum=True)
class ClassMeansHead(HeadRule):
    """The head chooses the class whose mean of all devices' features is nearest."""

    name: ClassVar[str] = MEANS_GROUP
    gram: ClassVar[bool] = False

    def solve(self, parts: Sequence[Sums], *, bias: bool) -> Head:
        return least_squares.class_means(total_of(parts), bias=bias)


def sums_of_tier(
    head: str, spec: SubModelSpec, channel_map: ChannelMap, device: str = "", arrays: Arrays | None = None
) -> DeviceSums:
    """Sums of the features that a sub-model has."""
    layout = channel_map.parameters[f"{head}.weight"]
    features = to_array(submodel_index_set(layout, spec).axes[1])
    return DeviceSums(
        device, tier_key(spec, channel_map), head, {**(arrays or {}), FEATURES: features.astype(np.int64)}
    )


def _sums_of(source: ClientUpdate, sent: Arrays, channel_map: ChannelMap) -> DeviceSums:
    """A device's sums, scaled to as many examples as it is believed to have."""
    head = next(iter(sent)).partition("/")[0]
    arrays = {name.partition("/")[2]: sent[name] for name in sent}
    counted = _examples_of(arrays)
    if source.examples < counted:
        arrays = {name: array * (source.examples / counted) for name, array in arrays.items()}
    return sums_of_tier(head, source.spec, channel_map, source.client, arrays)


def _examples_of(arrays: Mapping[str, Any]) -> float:
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


def unprojected(weight: Any, features: int) -> Any:
    """The weight [D, L] of a head of features whose projection has this weight [`MAX_FEATURES`, L]."""
    if features <= feature_sums.MAX_FEATURES:
        return weight
    return np.concatenate([strip @ weight for _, strip in feature_sums.signs(features)])


def _suspicion(held: Any) -> str:
    """Why a device is a suspect, from its test as the server holds it."""
    *figures, _, weight = held.tolist()
    tested = Tested(*figures)
    counts = f"its sums count {weight:.0%}" if weight < 1 else "its sums count in full"
    return (
        f"its sums take the others' squared error from {tested.without_it:.3g} to {tested.with_it:.3g}, and "
        f"their head is worse on its examples ({tested.own:.3g}) than no answer ({tested.none:.3g}): "
        f"look at its labels ({counts})"
    )


def _check_sums(sums: Sums) -> None:
    """Raise `PeerError` for sums of no features: by Cauchy and Schwarz no product exceeds the squares."""
    counts = sums.targets[-1]
    if not sums.gram.size:
        if sums.squares < 0 or bool((counts < 0).any()):
            raise _impossible("the classes have fewer than no examples")
        return
    squares, count = np.diag(sums.gram), sums.examples
    bound = np.sqrt(np.outer(np.abs(squares), np.abs(squares)))
    if count < 0 or count != np.floor(count) or bool((squares < 0).any()):
        raise _impossible("the squares of features have negative sums")
    if bool((np.abs(sums.gram) > bound * (1 + ROUNDING) + ROUNDING).any()):
        raise _impossible("products of features exceed their squares")
    most = np.sqrt(squares * max(0.0, sums.squares))[:, None]
    if bool((np.abs(sums.targets) > most * (1 + ROUNDING) + ROUNDING).any()):
        raise _impossible("products of features and targets exceed their squares")


def _impossible(detail: str) -> PeerError:
    return PeerError(detail, reason=Reason.OUT_OF_BOUNDS)
