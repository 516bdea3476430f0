"""Masking a trained update: the bare one is read from the store, and gone from there when this is done."""

from __future__ import annotations

from edge_client.blobstore import BlobStore
from edge_client.secure import masks, member
from edge_client.secure.membership import Membership
from edge_client.secure.quantisation import quantise
from edge_client.secure.segments import checked_labels, split
from schemas.blobs import CHUNK_BYTES, encode_groups, read_groups
from schemas.messages import Update
from schemas.submodel import ChannelMap

GROUP = "masked"
"""The group of a masked update: one vector of whole numbers per segment, named by its index."""


def mask_update(
    update: Update, membership: Membership, store: BlobStore, *, chunk_bytes: int = CHUNK_BYTES
) -> Update:
    """The same update with a blob that nobody can read alone.

    Raises `PeerError` for numbers that are not finite, and for segments that the server has made up.
    """
    task, bare = membership.task, store.path(update.blob.digest)
    described = store.path(task.blobs["channel-map"].digest)
    channel_map = ChannelMap.model_validate_json(described.read_bytes())
    labels = checked_labels(membership.terms, channel_map)
    vectors = split(read_groups(bare)["model"], task.spec, labels, channel_map)
    chosen, scale = member.masks(membership)
    whole = {index: quantise(vectors[index], update.metrics.examples, scale) for index in chosen.segments}
    masked = {str(index): vector for index, vector in masks.apply(whole, chosen).items()}
    blob = store.put(encode_groups({GROUP: masked}), chunk_bytes=chunk_bytes)  # type: ignore[dict-item]
    bare.unlink(missing_ok=True)
    return update.model_copy(update={"blob": blob})
