"""A device that follows the protocol but manipulates its updates, with one trick per round."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.session.events import SendChunks, WorkDone, WorkFailed
from edge_client.data.local import LocalData
from edge_client.pruning.index_sets import extract
from schemas.errors import Reason
from schemas.messages import TaskReply, Update
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Groups
from schemas.tensors.chunks import BlobRef, digest_of, encode_chunk
from schemas.topics import Channel, DeviceTopic
from tests.groups import encode_groups, read_groups

GIGABYTE = 10**9


class Mallory(Agent):
    """An agent that applies the trick of the round to its trained update; the last trick is repeated."""

    def __init__(self, settings: AgentSettings, data: LocalData, tricks: Sequence[Trick]) -> None:
        super().__init__(settings, data)
        self._take, self.loop.handle = self.loop.handle, self._play_trick
        self._store, self._send_honestly = self.runner.state_store.blobs, self.runner.send_chunks
        self.runner.send_chunks = self._send_chunks  # type: ignore[method-assign]
        self._tricks = tricks
        self._frames: Callable[[bytes], Sequence[bytes]] | None = None
        self.first: tuple[Update, bytes] | None = None

    def _play_trick(self, event: Any) -> None:
        if isinstance(event, WorkDone) and isinstance(event.result, Update):
            trick = self._tricks[min(event.result.round, len(self._tricks)) - 1]
            event = trick(self, event.result)
        self._take(event)

    def _send_chunks(self, command: SendChunks) -> None:
        if self._frames is None:
            self._send_honestly(command)
            return
        ref = command.ref
        for index in range(command.first, min(command.first + command.count, ref.chunks)):
            for frame in self._frames(self._store.read_frame(ref, index)):
                self.send_raw(frame, Channel.UP_BLOB)

    # --- tools for tricks ---
    def send_raw(self, payload: bytes, channel: Channel = Channel.UP) -> None:
        """Publish arbitrary bytes on a topic of this device."""
        session = self.runner.session
        self.link.publish(str(DeviceTopic(session.federation, session.device, channel)), payload)

    def bytes_of(self, update: Update) -> bytes:
        """The bytes of the trained update's blob."""
        return self._store.blob_path(update.blob.digest).read_bytes()

    def with_bytes(self, update: Update, data: bytes) -> WorkDone:
        """The update with another blob."""
        return WorkDone(update.model_copy(update={"blob": self._store.put_blob(data)}))

    def changed(self, update: Update, change: Callable[[np.ndarray], np.ndarray]) -> WorkDone:
        """The update with all its arrays changed."""
        groups = read_groups(self._store.blob_path(update.blob.digest))
        return self.with_bytes(update, encode_groups(each(groups, change)))

    def smaller_tier(self) -> tuple[ChannelMap, SubModelSpec]:
        """Half of every channel group."""
        assert self.runner.session.task is not None
        path = self._store.blob_path(self.runner.session.task.blobs["channel-map"].digest)
        channel_map = ChannelMap.model_validate_json(path.read_bytes())
        return channel_map, SubModelSpec(kept={k: g.channels // 2 for k, g in channel_map.groups.items()})

    def declined(self) -> WorkFailed:
        """A declined task, so that the round continues after a trick without an update."""
        assert self.runner.session.task is not None
        return WorkFailed(self.runner.session.task, Reason.TASK_FAILED, "no more")

    def decline_now(self, update: Update) -> None:
        """Decline during an upload."""
        fields = {name: getattr(update, name) for name in ("federation", "device", "run", "round", "attempt")}
        self.send_raw(TaskReply(**fields, accepted=False).model_dump_json().encode())


Trick = Callable[[Mallory, Update], Any]


def each(groups: Groups, change: Callable[[np.ndarray], np.ndarray]) -> Groups:
    """Every array changed."""
    return {
        group: {name: change(array).astype(np.float32) for name, array in arrays.items()}
        for group, arrays in groups.items()
    }


def nan(mallory: Mallory, update: Update) -> Any:
    return mallory.changed(update, lambda array: array * np.nan)


def infinite(mallory: Mallory, update: Update) -> Any:
    return mallory.changed(update, lambda array: np.full(array.shape, -np.inf))


def huge(mallory: Mallory, update: Update) -> Any:
    return mallory.changed(update, lambda array: array * 1e6)


def flipped(mallory: Mallory, update: Update) -> Any:
    """Within every bound, but opposite to the honest updates."""
    return mallory.changed(update, lambda array: -3 * array)


def wrong_tier(mallory: Mallory, update: Update) -> Any:
    channel_map, spec = mallory.smaller_tier()
    model = read_groups(mallory._store.blob_path(update.blob.digest))["model"]
    small = encode_groups({"model": extract(model, spec, channel_map)})
    return mallory.with_bytes(update.model_copy(update={"spec": spec}), small)


def giant_claim(mallory: Mallory, update: Update) -> Any:
    blob = BlobRef(digest=digest_of(b"never sent"), size=GIGABYTE)
    return WorkDone(update.model_copy(update={"blob": blob}))


def bomb(mallory: Mallory, update: Update) -> Any:
    """64 MB of zeros in 64 kB; the server never decompresses it, it is just not a valid blob."""
    return mallory.with_bytes(update, gzip.compress(bytes(64 * 1024 * 1024)))


def truncated(mallory: Mallory, update: Update) -> Any:
    def cut(frame: bytes) -> Sequence[bytes]:
        mallory.decline_now(update)
        return [frame[:-1]]

    mallory._frames = cut
    return WorkDone(update)


def beyond(mallory: Mallory, update: Update) -> Any:
    """Chunks beyond the end of the blob and of the wrong length, then the right one."""
    digest = update.blob.digest
    wrong = [encode_chunk(digest, index, bytes(200_000)) for index in (1, 100, 2**32 - 1)]
    mallory._frames = lambda frame: [*wrong, encode_chunk(digest, 0, b"short"), frame]
    return WorkDone(update)


def garbage(mallory: Mallory, update: Update) -> Any:
    """Deep nesting, invalid UTF-8, a huge number, a lone surrogate; then the honest update."""
    mallory._frames = None
    for payload in (
        b"[" * 100_000,
        b'{"kind":' * 4000,
        b'{"kind": "\xff\xfe"}',
        b'{"kind": "birth", "session": ' + b"9" * 3000 + b"}",
        b'{"kind": "\\ud800"}',
    ):
        mallory.send_raw(payload)
    return WorkDone(update)


def impostor(mallory: Mallory, update: Update) -> Any:
    mallory.send_raw(update.model_copy(update={"device": "honest-00"}).model_dump_json().encode())
    return mallory.declined()


def honest(mallory: Mallory, update: Update) -> Any:
    return WorkDone(update)


def kept(mallory: Mallory, update: Update) -> Any:
    """Honest, but saved for a replay."""
    mallory.first = update, mallory.bytes_of(update)
    return WorkDone(update)


def replayed(mallory: Mallory, update: Update) -> Any:
    """The first round's bytes as this round's update."""
    assert mallory.first is not None
    return mallory.with_bytes(update, mallory.first[1])


def stale(mallory: Mallory, update: Update) -> Any:
    """The first round's message, which is confirmed again, and another update of it, which is late."""
    assert mallory.first is not None
    first = mallory.first[0]
    other = first.blob.model_copy(update={"digest": first.blob.digest[::-1]})
    for claim in (first, first.model_copy(update={"blob": other})):
        mallory.send_raw(claim.model_dump_json().encode())
    return mallory.declined()
