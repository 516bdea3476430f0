"""Blobs whose files are gone or damaged: said, removed, and made anew where they can be."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from edge_client.storage.blob_store import BlobStore

log = logging.getLogger(__name__)


def mended(
    store: BlobStore, digests: Iterable[str], make_anew: Callable[[frozenset[str]], None]
) -> frozenset[str]:
    """Which of these blobs are lost for good: the damaged ones that `make_anew` does not make again."""
    damaged = frozenset(digest for digest in digests if not store.is_sound(digest))
    if not damaged:
        return damaged
    for digest in sorted(damaged):
        state = "is not the blob of its name" if digest in store else "is gone"
        log.warning("%s %s: it is made anew", store.path(digest), state)
        store.path(digest).unlink(missing_ok=True)
    make_anew(damaged)
    lost = frozenset(digest for digest in damaged if digest not in store)
    for digest in sorted(lost):
        log.warning("blob %s cannot be made anew: whoever needs it is asked again", digest)
    return lost
