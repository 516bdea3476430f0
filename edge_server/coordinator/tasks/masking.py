"""Masking terms of a round, and the sum of its masked updates as one update."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from edge_client.pruning.index_sets import expected_shapes
from edge_client.security.secure_aggregation import mask_update, masked_figures, masks
from edge_server.config.config import Config
from edge_server.config.privacy import PrivacySettings
from edge_server.coordinator.tasks.task import TaskPlan
from edge_server.coordinator.validation.data_statistics import answer_shapes
from edge_server.rounds.fleet import Device
from edge_server.security.secure_aggregation import protocol
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.groups.feature_sums import HeadRule
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas import messages, statistics
from schemas.errors import ConfigError
from schemas.security.secure_aggregation import MaskingTerms
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import ModelSpec, TrainingMetrics

SHARE_DIGITS = 2 * 33 + 3
"""Characters of one share in a message, with quotes; a parcel has one per segment and one of the key."""
NAME_DIGITS = 110  # Characters of a parcel's recipient and seal


def masking_terms(
    config: Config, specs: Sequence[SubModelSpec], examples: Sequence[int], channel_map: ChannelMap
) -> MaskingTerms:
    """Masking terms for devices with these sub-models and examples; `ConfigError` if they are too many."""
    equal = WEIGHTINGS.traits(config.strategy.weighting.name).masked == "equal"
    return _terms(config.privacy, specs, examples, channel_map, equal=equal)


def _terms(
    privacy: PrivacySettings,
    specs: Sequence[SubModelSpec],
    examples: Sequence[int],
    channel_map: ChannelMap,
    *,
    equal: bool = False,
) -> MaskingTerms:
    """Terms for numbers that are weighted by examples, or `equal`."""
    known = masked_figures.distinct(specs)
    segments, _ = masked_figures.partition(known, channel_map)
    if len(specs) * (SHARE_DIGITS * (1 + len(segments)) + NAME_DIGITS) > messages.MAX_MESSAGE_BYTES:
        raise ConfigError(
            f"the shares of {len(specs)} devices with {len(segments)} segments do not fit a message",
            key="[clients] fraction",
            remedy="lower it, or have fewer [tiers] ratios",
        )
    return MaskingTerms(
        specs=known,
        segments=segments,
        value_range=privacy.value_range,
        weighting="equal" if equal else "examples",
        max_weight=1 if equal else masks.most_weight(max(examples), len(specs)),
        min_holders=privacy.min_holders,
        threshold=privacy.threshold,
    )


def statistics_terms(
    config: Config, request: statistics.StatisticsRequest, model: ModelSpec, examples: Sequence[int]
) -> MaskingTerms:
    """Masking terms for answers to a request for statistics, for devices with this number of examples."""
    privacy = config.privacy.model_copy(update={"value_range": masked_figures.VALUE_RANGE})
    return _terms(privacy, [SubModelSpec()] * len(examples), examples, statistics_map(request, model))


def statistics_map(request: statistics.StatisticsRequest, model: ModelSpec) -> ChannelMap:
    """Where the numbers of a masked answer are."""
    return masked_figures.map_of(masked_figures.mean_shapes(answer_shapes(request, model)))


def sum_masked_answers(
    updates: Sequence[ClientUpdate],
    opened: protocol.OpenedSecrets,
    request: statistics.StatisticsRequest,
    model: ModelSpec,
) -> ClientUpdate:
    """The answer of all survivors to a request for statistics."""
    total = sum_masked_updates(updates, opened, statistics_map(request, model))
    values, devices = math.prod(model.input_shape[1:]), len(opened.survivors)
    groups = masked_figures.as_sums(
        total.groups["model"], request, total.examples, values=values, devices=devices
    )
    return replace(total, groups=groups)


def figures_terms(
    config: Config, specs: Sequence[SubModelSpec], examples: Sequence[int], figures: ChannelMap
) -> MaskingTerms:
    """Masking terms for what devices measure of sub-models; `figures` says where the numbers are."""
    return _terms(config.privacy, specs, examples, figures)


def figures_map(model: ModelSpec, channel_map: ChannelMap, *, by_class: bool) -> ChannelMap:
    """Where the numbers of a masked measurement are."""
    return masked_figures.map_of(masked_figures.figure_shapes(model, by_class=by_class), channel_map.groups)


def sum_masked_figures(
    updates: Sequence[ClientUpdate], opened: protocol.OpenedSecrets, model: ModelSpec, figures: ChannelMap
) -> ClientUpdate:
    """What all survivors have measured, as metrics."""
    total = sum_masked_updates(updates, opened, figures)
    measured = masked_figures.as_measured(total.groups["model"], model, total.examples)
    return replace(total, groups={"model": {}}, metrics=measured.model_dump(exclude_none=True))


def sums_map(
    rules: Sequence[GroupRule], spec: SubModelSpec, model: ModelSpec, channel_map: ChannelMap
) -> ChannelMap:
    """Where the numbers of masked sums of features are."""
    rule = _rule_of_sums(rules)
    shapes = rule.shapes(expected_shapes(spec, channel_map), model)
    whole = {name: tuple(size or 0 for size in shape) for name, shape in shapes.items()}
    return masked_figures.map_of(whole, channel_map.groups)


def _rule_of_sums(rules: Sequence[GroupRule]) -> GroupRule:
    return next(rule for rule in rules if isinstance(rule, HeadRule))


def sum_masked_sums(
    updates: Sequence[ClientUpdate],
    opened: protocol.OpenedSecrets,
    rules: Sequence[GroupRule],
    numbers: ChannelMap,
) -> ClientUpdate:
    """The sums of features of all survivors, which have one sub-model."""
    total = sum_masked_updates(updates, opened, numbers)
    means = total.groups["model"]
    sums: dict[str, Any] = {name: np.asarray(means[name], np.float64) * total.examples for name in means}
    return replace(total, spec=opened.terms.specs[0], groups={"model": {}, _rule_of_sums(rules).name: sums})


def with_local_examples(plans: Mapping[str, TaskPlan], devices: Sequence[Device]) -> dict[str, TaskPlan]:
    """The plans of devices with examples: the zeros of the others would hide no update."""
    names = {device.name for device in devices if device.data.examples > 0}
    return {name: plan for name, plan in plans.items() if name in names}


def sum_masked_updates(
    updates: Sequence[ClientUpdate], opened: protocol.OpenedSecrets, channel_map: ChannelMap
) -> ClientUpdate:
    """The mean over all holders as one update of the full model; zero where nothing is unmasked."""
    labels = masked_figures.checked_labels(opened.terms, channel_map)
    totals = {
        index: protocol.unmasked_sum(opened, index, _vectors(updates, opened, index))
        for index in opened.segments
    }
    mean, weight = protocol.mean_over_survivors(opened, totals, labels)
    return ClientUpdate(protocol.COHORT, SubModelSpec(), {"model": mean}, weight)


def cohort_update(total: ClientUpdate, blob: BlobRef, sample: messages.Update) -> messages.Update:
    """The sum as the message of a device named `COHORT`, for the journal; `sample` is any summed update."""
    about = {"examples": total.examples, "epochs": sample.metrics.epochs, "steps": 0, **total.metrics}
    metrics = TrainingMetrics.model_validate(about)
    changed = {"device": protocol.COHORT, "blob": blob, "spec": total.spec, "metrics": metrics}
    return sample.model_copy(update=changed)


def _vectors(
    updates: Sequence[ClientUpdate], opened: protocol.OpenedSecrets, segment: int
) -> Iterator[masks.Ring]:
    """The masked vectors of the segment's surviving holders."""
    holders = opened.terms.segments[segment].holders
    for update in updates:
        if opened.survivors[update.client].sub_model in holders:
            yield update.groups[mask_update.GROUP][str(segment)]  # type: ignore[misc]
