"""An uploaded update: whether it may count, and what the strategy gets of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edge_client.blobstore import BlobStore
from edge_server.firewall import examine
from edge_server.secure.examining import examine_masked
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.policies import Client
from edge_server.strategy.strategy import State
from edge_server.strategy.updates import ClientUpdate
from schemas.blobs import Groups, SpooledGroups
from schemas.errors import PeerError
from schemas.messages import Task, Update
from schemas.submodel import ChannelMap
from schemas.values import Reason


def verdict(
    update: Update,
    task: Task,
    store: BlobStore,
    channel_map: ChannelMap,
    rules: Sequence[GroupRule] = (),
    *,
    segments: Sequence[int] = (),
    further: Callable[[Groups], None] | None = None,
) -> tuple[Reason | None, str]:
    """Why the update in `store` must not count, as code and detail; no code where it may.

    `rules` are those of the groups that devices may send beside the model, `segments` those that a masked
    update must have; `further` is the check that comes last, of updates that can be read.
    """
    if not store.verify(update.blob):
        return Reason.DIGEST_MISMATCH, "the bytes are not those of the digest"
    try:
        groups = SpooledGroups(store.path(update.blob.digest))
        len(groups)  # reads the header: a file that is no blob of groups is refused for that first
        if task.masking is not None:
            examine_masked(update, groups, task, segments)
            return None, ""
        examine(update, groups, task, channel_map, rules)
        if further is not None:
            further(groups)
    except PeerError as error:
        return Reason(error.reason), str(error)
    return None, ""


def known_clients(state: State) -> list[Client]:
    """All clients that were ever there, by name."""
    return [Client(name, *about) for name, about in sorted(state.clients.items())]


def client_update(update: Update, path: Path, *, staleness: int, ratio: float | None) -> ClientUpdate:
    """The update at `path` with its figures; its arrays stay on disk until they are asked for.

    `ratio` is its task's, where that is known.
    """
    measured = {**update.metrics.model_dump(exclude_none=True), "staleness": staleness}
    if ratio is not None:
        measured["ratio"] = ratio
    groups = SpooledGroups(path)
    return ClientUpdate(update.device, update.spec, groups, update.metrics.examples, measured)
