"""What a server sends to its standby: entries, the chunks of their blobs, and refusals."""

import contextlib
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.standby.known_standby import KnownStandby
from edge_server.coordinator.standby.replica_source import Numbered, RunSource
from schemas.messages import BlobRequest, Message, StandbyEntry, StandbyRefusal, encode_message
from schemas.tensors.chunks import BlobRef
from schemas.topics import StandbyTopic


class StandbyOutput:
    """Publishes on the standby's topics of one federation."""

    def __init__(self, federation: str, link: Link) -> None:
        self.federation, self._link = federation, link

    def refuse(self, standby: str, detail: str) -> None:
        """Tell a standby why it cannot follow."""
        self._publish(StandbyRefusal(federation=self.federation, standby=standby, detail=detail))

    def send_entry(self, to: KnownStandby, entry: Numbered, store: BlobStore) -> None:
        """Announce an entry; the chunk of a small one follows unasked."""
        self._publish(
            StandbyEntry(
                federation=self.federation,
                standby=to.standby,
                series=to.series,
                number=entry.number,
                entry=entry.ref,
            )
        )
        if entry.ref.inline:
            self._send_chunks(entry.ref, range(1), store)

    def answer(self, request: BlobRequest, source: RunSource) -> None:
        """Send the requested chunks of a blob; none of a blob that is no longer there."""
        with contextlib.suppress(OSError):
            size = source.store.path(request.digest).stat().st_size
            ref = BlobRef(digest=request.digest, size=size, chunk_bytes=source.chunk_bytes)
            last = min(request.first + request.count, ref.chunks)
            self._send_chunks(ref, range(request.first, last), source.store)

    def _send_chunks(self, ref: BlobRef, indices: range, store: BlobStore) -> None:
        topic = str(StandbyTopic(self.federation, "chunk"))
        for index in indices:
            key = "standby", ref.digest, index
            self._link.send_chunk(key, topic, partial(store.read_frame, ref, index))

    def _publish(self, message: Message) -> None:
        self._link.publish(str(StandbyTopic(self.federation, "entry")), encode_message(message))
