"""Masks a trained update: replaces the unmasked blob in the store by the masked one."""

import logging
from typing import Any

import numpy as np

from edge_client.security.secure_aggregation import masked_figures, masks, protocol
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.storage.blob_store import BlobStore
from schemas import errors, messages, values
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, Groups
from schemas.tensors.chunks import CHUNK_BYTES
from schemas.tensors.files import FileGroups

log = logging.getLogger(__name__)

GROUP = "masked"  # the group of a masked update: a vector of integers per segment, named by its index


def mask_update(
    update: messages.Update,
    membership: Membership,
    store: BlobStore,
    *,
    chunk_bytes: int = CHUNK_BYTES,
    shared: bool = False,
) -> messages.Update:
    """The update with a masked blob; the unmasked one goes, unless devices with equal blobs share the store.

    Raises `PeerError` for numbers that are not finite, and for segments other than those of the sub-models.
    """
    unmasked = store.blob_path(update.blob.digest)
    numbers, channel_map, metrics = _answer(update, membership, store)
    groups = masked_groups({"model": numbers}, metrics.examples, membership, channel_map)
    blob = store.put_groups(groups, chunk_bytes=chunk_bytes)
    if not shared:
        unmasked.unlink(missing_ok=True)
    return update.model_copy(update={"blob": blob, "metrics": metrics})


def _answer(
    update: messages.Update, membership: Membership, store: BlobStore
) -> tuple[Any, ChannelMap, values.TrainingMetrics]:
    """The numbers to mask, where they are, and the metrics that stay visible."""
    groups, task, metrics = FileGroups(store.blob_path(update.blob.digest)), membership.task, update.metrics
    if task.statistics is not None:
        means = masked_figures.as_means(groups, task.statistics, metrics.examples)
        return means, masked_figures.map_of(masked_figures.shapes_of(means)), metrics
    described = store.blob_path(task.blobs["channel-map"].digest)
    channel_map = ChannelMap.model_validate_json(described.read_bytes())
    if not masked_figures.only_measures(task):
        trained = [name for name in channel_map.parameters if name in groups["model"]]
        return groups["model"], channel_map.of_parameters(trained), metrics
    if sums := [name for name in groups if name != "model"]:
        means = means_of_sums(groups[sums[0]], metrics.examples, membership.terms.value_range)
        return means, masked_figures.map_of(masked_figures.shapes_of(means), channel_map.groups), metrics
    figures, limit = masked_figures.as_numbers(metrics, task), membership.terms.value_range
    if (largest := float(np.abs(figures[masked_figures.FIGURES]).max())) > limit:
        log.warning(
            "a figure of %.4g is beyond +-%g, the range of masked numbers ([privacy] value-range of the "
            "server), and counts as that",
            *(largest, limit),
        )
    seen = values.TrainingMetrics(examples=metrics.measured_on, epochs=0, steps=0)
    return figures, masked_figures.map_of(masked_figures.shapes_of(figures), channel_map.groups), seen


def means_of_sums(sums: Arrays, examples: int, limit: float) -> dict[str, Any]:
    """The sums of features over the number of examples; `PeerError` where masks would cut one."""
    means = {name: np.asarray(sums[name], np.float64) / max(1, examples) for name in sums}
    if (largest := max(float(np.abs(mean).max(initial=0)) for mean in means.values())) > limit:
        raise errors.PeerError(
            f"a mean product of features is {largest:.4g}, beyond +-{limit:g}, the range of masked numbers "
            "([privacy] value-range of the server)",
            reason=errors.Reason.OUT_OF_BOUNDS,
        )
    return means


def masked_groups(groups: Groups, examples: int, membership: Membership, channel_map: ChannelMap) -> Groups:
    """The group `masked` of an update trained on `examples` examples; raises as `mask_update`."""
    labels = masked_figures.checked_labels(membership.terms, channel_map)
    vectors = masked_figures.split(groups["model"], membership.task.spec, labels, channel_map)
    chosen, scale = protocol.masks(membership)
    whole = {index: masks.quantise(vectors[index], examples, scale) for index in chosen.segments}
    masked: dict[str, Any] = {
        str(index): vector for index, vector in masks.apply_masks(whole, chosen).items()
    }
    return {GROUP: masked}
