"""One receiver process, started by the server: `python -m edge_server.transport.receivers.process`.

It receives a share of the uploads, checks each chunk, writes it to its blob's part file, and reports it to
the server. The server requests lost chunks again.
"""

import json
import logging
import queue
import sys
import threading
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.storage.blob_store import BlobStore
from edge_client.system.logging.setup import begin_inherited_log
from edge_client.transport import broker_link, mqtt_client
from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from edge_client.transport.event_loop import EventLoop
from edge_server.transport.receivers import messages
from schemas.errors import PeerError
from schemas.tensors.chunks import BlobRef, Chunk, decode_chunk
from schemas.topics import Channel, DeviceTopic, parse_topic, receiver_filters

OLD_BROKER = "the broker does not speak MQTT 5"


@dataclass(frozen=True)
class Ended:
    """Event: the server has closed the pipe."""


MAX_EARLY = 64  # Chunks kept that arrive before their blob is expected, as inline blobs do: 16 MB


class ChunkPlacement:
    """Writes chunks to the server's blob store; only the newest claim of each device counts."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._expected: dict[str, BlobRef] = {}
        self._early: deque[tuple[str, Chunk]] = deque(maxlen=MAX_EARLY)

    def expect(self, expected: messages.Expect) -> list[messages.Placed]:
        """Expect a device's chunks of this blob; write those that arrived early."""
        self._expected[expected.device] = expected.blob
        early = [chunk for device, chunk in self._early if device == expected.device]
        kept = [pair for pair in self._early if pair[0] != expected.device]
        self._early.clear()
        self._early.extend(kept)
        return [placed for chunk in early for placed in self.take(expected.device, chunk)]

    def take(self, device: str, chunk: Chunk) -> list[messages.Placed]:
        """Write an expected chunk; keep an unexpected one for a while.

        A chunk that does not fit its blob is reported, too: the server answers its device. Raises `OSError`
        if the disk is full.
        """
        ref = self._expected.get(device)
        if ref is None or not ref.digest.startswith(chunk.prefix):
            self._early.append((device, chunk))
            return []
        if chunk.index < ref.chunks and len(chunk.data) == ref.chunk_size(chunk.index):
            self._store.write_chunk(ref, chunk.index, chunk.data, chunk.crc)
        return [messages.Placed(device=device, prefix=chunk.prefix, index=chunk.index, size=len(chunk.data))]


class Receiver:
    """Receives its share of one federation's uploads until the server closes the pipe."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._inbox: broker_link.Inbox = queue.SimpleQueue()
        self._ended = False
        store = BlobStore(Path(settings["folder"]), only_writes=True)
        self._placing = ChunkPlacement(store)
        tls = settings["address"].pop("tls")
        files = None if tls is None else TlsFiles(**{k: Path(v) if v else None for k, v in tls.items()})
        self._link = mqtt_client.Link(
            BrokerAddress(**settings["address"], tls=files),
            self._inbox,
            client_id=settings["client_id"],
            filters=receiver_filters(settings["federation"], settings["group"]),
            longest_delay_s=2.0,
        )

    def run(self) -> None:
        threading.Thread(target=self._listen, daemon=True).start()
        self._link.open()
        try:
            EventLoop(self._inbox, handle=self._handle).run(until=lambda: self._ended)
        finally:
            self._link.close()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._inbox.put(messages.decode_line(line))
        self._inbox.put(Ended())

    def _handle(self, event: Any) -> None:
        try:
            match event:
                case Ended():
                    self._ended = True
                case broker_link.Arrived(topic, payload):
                    self._on_message(topic, payload)
                case messages.Expect():
                    self._send(*self._placing.expect(event))
                case broker_link.LinkDown(downgrade=True, silent=False):
                    self._send(messages.Unable(detail=OLD_BROKER))
                case broker_link.NotGranted(_, reason):
                    self._send(messages.Unable(detail=f"the broker grants no shared subscription: {reason}"))
                case broker_link.LinkUp():
                    self._link.handle(event)
                    self._send(messages.Ready())
                case _:
                    self._link.handle(event)
        except OSError as error:
            self._send(messages.NoRoom(errno=error.errno or 0, detail=str(error)))

    def _on_message(self, topic: str, payload: bytes) -> None:
        try:
            where = parse_topic(topic)
        except PeerError:
            # Without access control anyone may write to any topic.
            return
        if not isinstance(where, DeviceTopic) or where.channel is not Channel.UP_BLOB:
            return
        try:
            self._send(*self._placing.take(where.device, decode_chunk(payload)))
        except PeerError as error:
            detail = str(error)[:500]
            self._send(
                messages.Misfit(device=where.device, reason=error.reason, detail=detail, size=len(payload))
            )

    def _send(self, *outgoing: messages.ReceiverMessage | messages.Placed) -> None:
        for message in outgoing:
            sys.stdout.buffer.write(messages.encode_line(message))
        sys.stdout.buffer.flush()


def main() -> None:
    """Receive with the settings in the first line of standard input."""
    settings = json.loads(sys.stdin.buffer.readline())
    begin_inherited_log(logging.WARNING, federation=settings["federation"])
    Receiver(settings).run()


if __name__ == "__main__":
    main()
