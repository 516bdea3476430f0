"""An uploaded update: whether it may count, and what the strategy gets of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from edge_client.blobstore import BlobStore
from edge_client.codecs.chain import make_chain
from edge_client.codecs.compression import is_compressed
from edge_client.codecs.form import decoded
from edge_server.firewall import examine, max_answer_bytes
from edge_server.firewall.encoded import check_form
from edge_server.secure.examining import examine_masked
from edge_server.strategy.groups.rule import GroupRule
from edge_server.strategy.policies import Client
from edge_server.strategy.strategy import State
from edge_server.strategy.updates import ClientUpdate
from edge_server.unpacking import Unpacked
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
    unpacked: Unpacked,
    segments: Sequence[int] = (),
    further: Callable[[Groups], None] | None = None,
) -> tuple[Reason | None, str]:
    """Why the update in `store` must not count, as code and detail; no code where it may.

    `rules` are those of the groups that devices may send beside the model, `segments` those that a masked
    update must have; `further` is the check that comes last, of updates that can be read. A packed one is
    left `unpacked`.
    """
    if not store.verify(update.blob):
        return Reason.DIGEST_MISMATCH, "the bytes are not those of the digest"
    try:
        path = store.path(update.blob.digest)
        if task.masking is not None:
            examine_masked(update, SpooledGroups(path), task, segments)
            return None, ""
        groups = _decoded(path, task, max_answer_bytes(task, channel_map, rules), unpacked)
        examine(update, groups, task, channel_map, rules)
        if further is not None:
            further(groups)
    except PeerError as error:
        return Reason(error.reason), str(error)
    return None, ""


def _decoded(path: Path, task: Task, limit: int, unpacked: Unpacked) -> Groups:
    """The groups of an update that is encoded as its task asks; raises `PeerError` for any other."""
    chain = make_chain(task.uplink)
    if is_compressed(path) != (chain.pack is not None):
        raise PeerError("the update is not packed as its task asks")
    encoded = unpacked.groups(path, limit=limit)
    len(encoded)  # reads the header: a file that is no blob of groups is refused for that first
    check_form(encoded, chain)
    return decoded(encoded)


def known_clients(state: State) -> list[Client]:
    """All clients that were ever there, by name."""
    return [Client(name, *about) for name, about in sorted(state.clients.items())]


def client_update(
    update: Update, path: Path, *, unpacked: Unpacked, staleness: int, ratio: float | None
) -> ClientUpdate:
    """The update at `path` with its figures; its arrays stay on disk until they are asked for.

    `ratio` is its task's, where that is known. It has been examined: how it is encoded it says itself.
    """
    measured = {**update.metrics.model_dump(exclude_none=True), "staleness": staleness}
    if ratio is not None:
        measured["ratio"] = ratio
    groups = decoded(unpacked.groups(path))
    return ClientUpdate(update.device, update.spec, groups, update.metrics.examples, measured)
