"""From a run's settings to what a round masks by, and from masked updates to the one that stands for them."""

from __future__ import annotations

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
"""Of one share in a message, quoted; a parcel has one per segment and one of the key."""
NAME_DIGITS = 110
"""Of whom a parcel is for, and of its seal."""


def masking_terms(
    config: Config, specs: Sequence[SubModelSpec], examples: Sequence[int], channel_map: ChannelMap
) -> MaskingTerms:
    """What devices with these sub-models and examples mask by; `ConfigError` where they cannot."""
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


def with_local_examples(jobs: Mapping[str, TaskPlan], devices: Sequence[Device]) -> dict[str, TaskPlan]:
    """The jobs of devices that have anything to say: among others' zeros nobody is hidden."""
    speaking = {device.name for device in devices if device.data.examples > 0}
    return {name: job for name, job in jobs.items() if name in speaking}


def sum_masked_updates(
    updates: Sequence[ClientUpdate], opened: OpenedSecrets, channel_map: ChannelMap
) -> ClientUpdate:
    """The mean over all holders as one update of the full model; no change where nothing is revealed."""
    labels = checked_labels(opened.terms, channel_map)
    totals = {
        index: unmasked_sum(opened, index, _vectors(updates, opened, index)) for index in opened.segments
    }
    mean, weight = mean_over_survivors(opened, totals, labels)
    return ClientUpdate(COHORT, SubModelSpec(), {"model": mean}, weight)


def cohort_update(total: ClientUpdate, blob: BlobRef, one: Update) -> Update:
    """The sum as the message of a device that is none, for the journal; `one` is any of its updates."""
    metrics = TrainingMetrics(examples=total.examples, epochs=one.metrics.epochs, steps=0)
    changed = {"device": COHORT, "blob": blob, "spec": total.spec, "metrics": metrics}
    return one.model_copy(update=changed)


def _vectors(updates: Sequence[ClientUpdate], opened: OpenedSecrets, segment: int) -> Iterator[Ring]:
    """What the segment's surviving holders sent, one at a time."""
    holders = opened.terms.segments[segment].holders
    for update in updates:
        if opened.survivors[update.client].sub_model in holders:
            yield update.groups[GROUP][str(segment)]  # type: ignore[misc]
