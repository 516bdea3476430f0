"""Masks a trained update: replaces the unmasked blob in the store by the masked one."""

from typing import Any

from edge_client.security.secure_aggregation import masks, protocol
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.security.secure_aggregation.masked_statistics import as_means, map_of
from edge_client.security.secure_aggregation.quantization import quantise
from edge_client.security.secure_aggregation.segments import checked_labels, split
from edge_client.storage.blob_store import BlobStore
from schemas.messages import Update
from schemas.submodel import ChannelMap
from schemas.tensors.blobs import CHUNK_BYTES, FileGroups, Groups

GROUP = "masked"
"""The group of a masked update: a vector of integers per segment, named by its index."""


def mask_update(
    update: Update, membership: Membership, store: BlobStore, *, chunk_bytes: int = CHUNK_BYTES
) -> Update:
    """The update with a masked blob.

    Raises `PeerError` for numbers that are not finite, and for segments other than those of the sub-models.
    """
    unmasked, task, examples = store.path(update.blob.digest), membership.task, update.metrics.examples
    if task.statistics is not None:
        model: Any = as_means(FileGroups(unmasked), task.statistics, examples)
        channel_map = map_of({name: array.shape for name, array in model.items()})
    else:
        model = FileGroups(unmasked)["model"]
        described = store.path(task.blobs["channel-map"].digest)
        channel_map = ChannelMap.model_validate_json(described.read_bytes())
    groups = masked_groups({"model": model}, examples, membership, channel_map)
    blob = store.put_groups(groups, chunk_bytes=chunk_bytes)
    unmasked.unlink(missing_ok=True)
    return update.model_copy(update={"blob": blob})


def masked_groups(groups: Groups, examples: int, membership: Membership, channel_map: ChannelMap) -> Groups:
    """The group `masked` of an update trained on `examples` examples; raises as `mask_update`."""
    labels = checked_labels(membership.terms, channel_map)
    vectors = split(groups["model"], membership.task.spec, labels, channel_map)
    chosen, scale = protocol.masks(membership)
    whole = {index: quantise(vectors[index], examples, scale) for index in chosen.segments}
    masked: dict[str, Any] = {str(index): vector for index, vector in masks.apply(whole, chosen).items()}
    return {GROUP: masked}
