"""Heads in one round: devices send sums of their features, the server adds them and solves (Fani et al. 2024,
Fed3R; He et al. 2025, AFL; Legate et al. 2023, FedNCM).

The server holds the sums of every device, so that a device can send others later, or be taken out: a head is
always that of the sums held, to the bit. Each tier has a head of its own (`device_sums`).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, replace
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from edge_client.training import feature_sums
from edge_client.training.feature_sums import GRAM, GROUP, MEANS_GROUP, PARTS, SQUARES, TARGETS
from edge_server.strategy.aggregation.array_stores import store_arrays
from edge_server.strategy.aggregation.updates import ClientUpdate, has_trained, sources_of
from edge_server.strategy.explanations import Observed
from edge_server.strategy.groups import device_sums, least_squares, rule, statistics
from edge_server.strategy.selection.interface import Noise, RoundResult
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.values import ModelSpec

MAX_WORK = 1e12  # Devices times the cube of features up to which devices are tested on each other


@rule.GroupTraits(ignores_models=True, is_sum=True, bounds_examples=True)
class HeadRule(rule.GroupRule):
    """What both rules have in common: they differ in how a head is solved.

    Without `keep` the sums are not held, and tiers have the global model's head. With `earlier` a run that
    starts from the model of another begins with the sums that this run holds. With a `clip`, of which sums
    are in units, heads come from noisy sums of all devices together, and no sums are held.
    """

    name: ClassVar[str] = GROUP
    downlink: ClassVar[bool] = False
    dtype: ClassVar[Any] = np.dtype(np.float64)
    max_abs: ClassVar[float] = 1e15
    repeats: ClassVar[bool] = True
    gram: ClassVar[bool] = True

    def __init__(self, *, keep: bool = True, earlier: bool = True, clip: float | None = None) -> None:
        self._clip = clip
        self.owns = keep and clip is None
        self.continues = self.owns and earlier

    def solve_devices(
        self, devices: Sequence[Callable[[], least_squares.Parts]], *, bias: bool
    ) -> least_squares.Head:
        """The head of all devices, whose sums are read one after another."""
        return self.solve(least_squares.total_parts(read() for read in devices), bias=bias)

    def solve_noisy(self, sums: least_squares.Sums, deviation: float, *, bias: bool) -> least_squares.Head:
        """The head of sums of which each number has noise of this deviation."""
        raise NotImplementedError

    def solve(self, parts: Sequence[least_squares.Sums], *, bias: bool) -> least_squares.Head:
        """The head of the sums of both parts of all examples."""
        raise NotImplementedError

    def test_devices(self, sums: Sequence[device_sums.DeviceSums], channel_map: ChannelMap) -> dict[str, Any]:
        """What tests of devices on each other show, as held: none where nothing follows from their sums."""
        return {}

    def observations(self, held: Arrays) -> Observed:
        """By how much each device's sums cost the others, and why which of them are suspects."""
        tested = {
            name.partition("/")[2]: held[name] for name in held if name.startswith(f"{device_sums.TESTED}/")
        }
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
        tier = statistics.tier_key(spec, channel_map)
        if tier == statistics.FULL:
            return {}
        if own := statistics.arrays_of_tier(held, spec, channel_map):
            return own
        sums = device_sums.held_sums(held)
        if not sums:
            return {}
        wanted = device_sums.sums_of_tier(sums[0].head, spec, channel_map)
        return self.head_for(wanted, sums, channel_map)

    def shapes(self, model: Mapping[str, rule.Shape], network: ModelSpec) -> Mapping[str, rule.Shape]:
        """The sub-model's sums; raises `ConfigError` for a network without a head."""
        from edge_client.models.build import header_of

        head = header_of(network)
        outputs, features = model[f"{head}.weight"]
        assert features is not None
        rows = feature_sums.width(features)
        sums: dict[str, rule.Shape] = {TARGETS: (PARTS, rows, outputs), SQUARES: (PARTS,)}
        if self.gram:
            sums[GRAM] = (PARTS, feature_sums.packed_size(rows))
        return {f"{head}/{name}": shape for name, shape in sums.items()}

    def check(self, sent: Arrays, examples: int) -> None:
        """As many examples as the update states, and sums that some features have."""
        arrays = {name.rpartition("/")[2]: array for name, array in sent.items()}
        parts = device_sums.DeviceSums("", "", "", arrays).parts()
        for part in parts:
            device_sums.check_sums(part)
            if self._clip is not None:
                device_sums.check_clipped(part)
        counted = sum(part.examples for part in parts)
        if counted != examples:
            raise device_sums.impossible(f"the sums are of {counted:g} examples, the update of {examples}")

    def fold(self, held: Arrays, result: RoundResult) -> rule.FoldedGroup:
        """The sums held with those of this round, and their heads; none once devices have trained.

        A device's sums take the place of its earlier ones.
        """
        sources = sources_of(result.updates)
        if has_trained(sources):
            return rule.FoldedGroup({}, result.after)
        senders = [source for source in sources if source.groups.get(self.name)]
        sent = [_sums_of(source, source.groups[self.name], result.channel_map) for source in senders]
        if not sent:
            return rule.FoldedGroup(held, result.after)
        if result.noise is not None:
            return rule.FoldedGroup({}, {**result.after, **self._noisy_head(sent, result, result.noise)})
        if not self.owns:
            folded = self.with_heads(sent, result.after, result.channel_map)
            tested = {
                name: array
                for name, array in folded.held.items()
                if name.startswith(f"{device_sums.TESTED}/")
            }
            return rule.FoldedGroup(tested, folded.params)
        devices = {sums.device for sums in sent}
        kept = [sums for sums in device_sums.held_sums(held) if sums.device not in devices]
        sums = sorted([*kept, *sent], key=lambda each: each.device)
        folded = self.with_heads(sums, result.after, result.channel_map)
        return rule.FoldedGroup(store_arrays(folded.held, result.keep), folded.params)

    def _noisy_head(
        self, sent: Sequence[device_sums.DeviceSums], result: RoundResult, noise: Noise
    ) -> dict[str, Any]:
        """The head of all devices' sums, which have one tier, with noise on both matrices.

        Both parts of the examples are one: to choose a penalty by the second would take noise once more.
        """
        tier, bias = sent[0], f"{sent[0].head}.bias" in result.channel_map.parameters
        total = least_squares.total_of(least_squares.total_parts(each.parts() for each in sent))
        exact = {TARGETS: total.targets, SQUARES: np.array(total.squares)}
        if self.gram:
            exact = {TARGETS: total.targets, GRAM: feature_sums.pack(total.gram)}
        rows = len(total.targets)
        reach = feature_sums.sensitivity(rows, gram=self.gram)
        noisy = noise.add_to(exact, reach)
        gram = feature_sums.unpack(noisy[GRAM], rows) if self.gram else total.gram
        # Of one-hot targets the squares are the examples.
        squares = gram[-1, -1] if self.gram else noisy[SQUARES]
        sums = least_squares.Sums(gram, noisy[TARGETS], max(0.0, float(squares)))
        head = self.solve_noisy(sums, noise.multiplier * reach, bias=bias)
        return self._as_parameters(tier, head, result.channel_map)

    def continue_sums(
        self, earlier: Arrays, rows: device_sums.Rows, params: Arrays, channel_map: ChannelMap
    ) -> rule.FoldedGroup:
        """What another run of the same network held, with its heads; nothing of sums of another kind."""
        sums = [each.with_classes(rows) for each in device_sums.held_sums(earlier)]
        if not sums or any((GRAM in each.arrays) != self.gram for each in sums):
            return rule.FoldedGroup({}, params)
        return self.with_heads(sums, params, channel_map)

    def with_heads(
        self, sums: Sequence[device_sums.DeviceSums], params: Arrays, channel_map: ChannelMap
    ) -> rule.FoldedGroup:
        """These sums with each tier's head, and the global model with that of its own features.

        If nobody has summed the full network's features, its head is that of the widest tier, 0 elsewhere.
        """
        held: dict[str, Any] = {name: array for each in sums for name, array in each.as_arrays().items()}
        tested = self.test_devices([replace(each, weight=1.0) for each in sums], channel_map)
        held |= {f"{device_sums.TESTED}/{device}": about for device, about in tested.items()}
        sums = [replace(s, weight=float(tested[s.device][-1]) if s.device in tested else 1.0) for s in sums]
        heads = {each.tier: each for each in sums}
        solved = {tier: self.head_for(each, sums, channel_map) for tier, each in heads.items()}
        for tier, arrays in solved.items():
            if tier != statistics.FULL:
                held |= {f"{tier}/{name}": array for name, array in arrays.items()}
        widest = max(sums, key=lambda each: (each.tier == statistics.FULL, len(each.features)), default=None)
        return rule.FoldedGroup(held, {**params, **(solved[widest.tier] if widest else {})})

    def head_for(
        self, tier: device_sums.DeviceSums, sums: Sequence[device_sums.DeviceSums], channel_map: ChannelMap
    ) -> dict[str, Any]:
        """The head of a tier from all sums that have its features, in global coordinates; {} of none."""
        counting = [each for each in sums if device_sums.has_features_of(each, tier, channel_map)]
        if not counting:
            return {}
        devices = [partial(each.parts_for, tier.features) for each in counting]
        head = self.solve_devices(devices, bias=f"{tier.head}.bias" in channel_map.parameters)
        return self._as_parameters(tier, head, channel_map)

    def _as_parameters(
        self, tier: device_sums.DeviceSums, head: least_squares.Head, channel_map: ChannelMap
    ) -> dict[str, Any]:
        weight, bias = f"{tier.head}.weight", f"{tier.head}.bias"
        whole = np.zeros(channel_map.parameters[weight].shape, np.float32)
        whole[:, tier.features] = undo_projection(head.weight / (self._clip or 1), len(tier.features)).T
        if bias not in channel_map.parameters:
            return {weight: whole}
        return {weight: whole, bias: head.offset.astype(np.float32)}


@rule.GroupTraits(ignores_models=True, is_sum=True, bounds_examples=True)
class RidgeHead(HeadRule):
    """The head is the least-squares solution of all devices' examples together.

    `regularisation` is the penalty over the mean variance of a feature; by default the one with the least
    loss on a fifth of all examples, of which there are sums of their own. A class's score is divided by the
    root of its share of the examples (`least_squares.class_scales`). Each device is tested on all
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
        clip: float | None = None,
    ) -> None:
        super().__init__(keep=keep, earlier=earlier, clip=clip)
        self._caps = harmful == "cap"
        if regularisation is not None and not 0 < regularisation < np.inf:
            raise ValueError("regularisation must be above 0")
        self._ratio = regularisation

    def solve(self, parts: Sequence[least_squares.Sums], *, bias: bool) -> least_squares.Head:
        """The head of all examples; scores of classes are scaled to logits, a rare class's the more."""
        fitted, held_out = parts
        whole, ratio = fitted + held_out, self._ratio_of(parts, bias=bias)
        head = least_squares.ridge(whole, ratio, bias=bias)
        one_hot = np.allclose(
            [whole.squares, whole.targets[-1].sum()], whole.examples, rtol=device_sums.ROUNDING
        )
        if not one_hot or not fitted.examples:
            return head
        tried = least_squares.ridge(fitted, ratio, bias=bias)
        return head.with_scale(least_squares.score_scale(held_out, tried) * least_squares.class_scales(whole))

    def solve_noisy(self, sums: least_squares.Sums, deviation: float, *, bias: bool) -> least_squares.Head:
        head = least_squares.noisy_ridge(sums, self._ratio or least_squares.USUAL_RATIO, deviation, bias=bias)
        return head.with_scale(least_squares.score_scale(sums, head))

    def _ratio_of(self, parts: Sequence[least_squares.Sums], *, bias: bool) -> float:
        return self._ratio or least_squares.choose_ratio(*parts, bias=bias)

    def test_devices(self, sums: Sequence[device_sums.DeviceSums], channel_map: ChannelMap) -> dict[str, Any]:
        """Each device's sums, tested on those of all others that have its tier's features."""
        found: dict[str, Any] = {}
        for tier in {each.tier: each for each in sums}.values():
            counting = [each for each in sums if device_sums.has_features_of(each, tier, channel_map)]
            work = len(counting) * feature_sums.width(len(tier.features)) ** 3
            if len(counting) < least_squares.MIN_TESTED or work > MAX_WORK:
                continue
            about = self._test_tier(tier, counting, bias=f"{tier.head}.bias" in channel_map.parameters)
            found |= {each.device: about[each.device] for each in counting if each.tier == tier.tier}
        return found

    def _test_tier(
        self, tier: device_sums.DeviceSums, counting: Sequence[device_sums.DeviceSums], *, bias: bool
    ) -> dict[str, Any]:
        parts = {each.device: partial(each.parts_for, tier.features) for each in counting}
        ratio = self._ratio_of(least_squares.total_parts(read() for read in parts.values()), bias=bias)
        tested, suspects = least_squares.leave_one_out(parts, ratio, bias=bias)
        usual = float(np.median([each.examples for each in counting]))
        examples = {each.device: each.examples for each in counting}

        def as_held(device: str, about: least_squares.Tested) -> Any:
            is_suspect = device in suspects
            weight = min(1.0, usual / max(1.0, examples[device])) if is_suspect and self._caps else 1.0
            return np.array([*astuple(about), is_suspect, weight], np.float64)

        return {device: as_held(device, about) for device, about in tested.items()}


@rule.GroupTraits(ignores_models=True, is_sum=True, bounds_examples=True)
class ClassMeansHead(HeadRule):
    """The head chooses the class whose mean of all devices' features is nearest.

    With `covariances` nearest is in units of the covariance within classes, which follows from how far the
    means of devices lie apart (`least_squares.Scatter`): nothing more is sent. It takes some devices.
    """

    name: ClassVar[str] = MEANS_GROUP
    gram: ClassVar[bool] = False

    def __init__(
        self, *, covariances: bool = False, keep: bool = True, earlier: bool = True, clip: float | None = None
    ) -> None:
        super().__init__(keep=keep, earlier=earlier, clip=clip)
        self._covariances = covariances

    def solve_devices(
        self, devices: Sequence[Callable[[], least_squares.Parts]], *, bias: bool
    ) -> least_squares.Head:
        if not self._covariances:
            return super().solve_devices(devices, bias=bias)
        whole = least_squares.total_of(least_squares.total_parts(read() for read in devices))
        scatter = least_squares.Scatter.of((read() for read in devices), whole)
        return least_squares.class_covariances(whole, scatter, bias=bias)

    def solve(self, parts: Sequence[least_squares.Sums], *, bias: bool) -> least_squares.Head:
        return least_squares.class_means(least_squares.total_of(parts), bias=bias)

    def solve_noisy(self, sums: least_squares.Sums, deviation: float, *, bias: bool) -> least_squares.Head:
        # A class is there if it has more examples than noise makes of none.
        counts = np.where(sums.targets[-1] > 2 * deviation, sums.targets[-1], 0)
        there = np.concatenate([sums.targets[:-1] * (counts > 0), counts[None]])
        return least_squares.class_means(replace(sums, targets=there), bias=bias)


def _sums_of(source: ClientUpdate, sent: Arrays, channel_map: ChannelMap) -> device_sums.DeviceSums:
    """A device's sums, scaled to as many examples as it is believed to have."""
    head = next(iter(sent)).partition("/")[0]
    arrays = {name.partition("/")[2]: sent[name] for name in sent}
    counted = device_sums.examples_of(arrays)
    if source.examples < counted:
        arrays = {name: array * (source.examples / counted) for name, array in arrays.items()}
    return device_sums.sums_of_tier(head, source.spec, channel_map, source.client, arrays)


def undo_projection(weight: Any, features: int) -> Any:
    """The weight [D, L] of a head of features whose projection has this weight [`MAX_FEATURES`, L]."""
    if features <= feature_sums.MAX_FEATURES:
        return weight
    return np.concatenate([strip @ weight for _, strip in feature_sums.signs(features)])


def _suspicion(held: Any) -> str:
    """Why a device is a suspect, from its test as the server holds it."""
    *figures, _, weight = held.tolist()
    tested = least_squares.Tested(*figures)
    counts = f"its sums count {weight:.0%}" if weight < 1 else "its sums count in full"
    return (
        f"its sums take the others' squared error from {tested.without_it:.3g} to {tested.with_it:.3g}, and "
        f"their head is worse on its examples ({tested.own:.3g}) than no answer ({tested.none:.3g}): "
        f"look at its labels ({counts})"
    )
