"""Masking terms of a round, and the sum of its masked updates as one update."""

from collections.abc import Iterator, Mapping, Sequence

from edge_client.security.secure_aggregation.mask_update import GROUP
from edge_client.security.secure_aggregation.quantization import Ring, most_weight
from edge_client.security.secure_aggregation.segments import checked_labels, distinct, partition
from edge_server.config.config import Config
from edge_server.coordinator.tasks.task import TaskPlan
from edge_server.rounds.fleet import Device
from edge_server.security.secure_aggregation.protocol import COHORT
from edge_server.security.secure_aggregation.unmasking import OpenedSecrets, mean_over_survivors, unmasked_sum
from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.errors import ConfigError
from schemas.messages import MAX_MESSAGE_BYTES, Update
from schemas.security.secure_aggregation import MaskingTerms
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import BlobRef
from schemas.values import TrainingMetrics

SHARE_DIGITS = 2 * 33 + 3
"""Characters of one share in a message, with quotes; a parcel has one per segment and one of the key."""
NAME_DIGITS = 110
"""Characters of a parcel's recipient and seal."""


def masking_terms(
    config: Config, specs: Sequence[SubModelSpec], examples: Sequence[int], channel_map: ChannelMap
) -> MaskingTerms:
    """Masking terms for devices with these sub-models and examples; `ConfigError` if they are too many."""
    privacy, weighting = config.privacy, config.strategy.weighting.name
    known = distinct(specs)
    segments, _ = partition(known, channel_map)
    if len(specs) * (SHARE_DIGITS * (1 + len(segments)) + NAME_DIGITS) > MAX_MESSAGE_BYTES:
        raise ConfigError(
            f"[clients] fraction: the shares of {len(specs)} devices with {len(segments)} segments do not "
            "fit a message: lower it, or have fewer [tiers] ratios"
        )
    return MaskingTerms(
        specs=known,
        segments=segments,
        value_range=privacy.value_range,
        weighting="equal" if weighting == "equal" else "examples",
        max_weight=1 if weighting == "equal" else most_weight(max(examples), len(specs)),
        min_holders=privacy.min_holders,
        threshold=privacy.threshold,
    )


def with_local_examples(plans: Mapping[str, TaskPlan], devices: Sequence[Device]) -> dict[str, TaskPlan]:
    """The plans of devices with examples: the zeros of the others would hide no update."""
    names = {device.name for device in devices if device.data.examples > 0}
    return {name: plan for name, plan in plans.items() if name in names}


def sum_masked_updates(
    updates: Sequence[ClientUpdate], opened: OpenedSecrets, channel_map: ChannelMap
) -> ClientUpdate:
    """The mean over all holders as one update of the full model; zero where nothing is unmasked."""
    labels = checked_labels(opened.terms, channel_map)
    totals = {
        index: unmasked_sum(opened, index, _vectors(updates, opened, index)) for index in opened.segments
    }
    mean, weight = mean_over_survivors(opened, totals, labels)
    return ClientUpdate(COHORT, SubModelSpec(), {"model": mean}, weight)


def cohort_update(total: ClientUpdate, blob: BlobRef, sample: Update) -> Update:
    """The sum as the message of a device named `COHORT`, for the journal; `sample` is any summed update."""
    metrics = TrainingMetrics(examples=total.examples, epochs=sample.metrics.epochs, steps=0)
    changed = {"device": COHORT, "blob": blob, "spec": total.spec, "metrics": metrics}
    return sample.model_copy(update=changed)


def _vectors(updates: Sequence[ClientUpdate], opened: OpenedSecrets, segment: int) -> Iterator[Ring]:
    """The masked vectors of the segment's surviving holders."""
    holders = opened.terms.segments[segment].holders
    for update in updates:
        if opened.survivors[update.client].sub_model in holders:
            yield update.groups[GROUP][str(segment)]  # type: ignore[misc]
