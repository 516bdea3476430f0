"""One receiver process, started by the server: `python -m edge_server.transport.receivers.process`.

It has a share of the upload topics, checks every chunk's frame, writes it to its place, and tells the server
which chunk that was. What it loses, with the broker or with its life, the server asks for again.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.storage.blob_store import BlobStore
from edge_client.system.logging.setup import begin_inherited_log
from edge_client.transport.broker_address import BrokerAddress, TlsFiles
from edge_client.transport.mqtt_client import Arrived, Inbox, Link, LinkDown, LinkUp, NotGranted
from edge_server.transport.receivers.messages import (
    Expect,
    Misfit,
    NoRoom,
    Placed,
    Ready,
    ReceiverMessage,
    Unable,
    decode_line,
    encode_line,
)
from edge_server.transport.receivers.placement import ChunkPlacement
from schemas.errors import PeerError
from schemas.tensors.blobs import decode_chunk
from schemas.topics import Channel, DeviceTopic, parse_topic, receiver_filters

OLD_BROKER = "the broker does not speak MQTT 5"


@dataclass(frozen=True)
class Ended:
    """Event: the server says no more."""


class Receiver:
    """Takes its share of one federation's uploads until the server's end of the pipe is closed."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self._inbox: Inbox = queue.SimpleQueue()
        store = BlobStore(Path(settings["folder"]), durable=settings["durable"], only_writes=True)
        self._placing = ChunkPlacement(store)
        tls = settings["address"].pop("tls")
        files = None if tls is None else TlsFiles(**{k: Path(v) if v else None for k, v in tls.items()})
        self._link = Link(
            BrokerAddress(**settings["address"], tls=files),
            self._inbox,
            client_id=settings["client_id"],
            filters=receiver_filters(settings["federation"], settings["group"]),
            longest_delay_s=2.0,
        )

    def run(self) -> None:
        """Receive until there is nobody to tell."""
        threading.Thread(target=self._listen, daemon=True).start()
        self._link.open()
        try:
            while not isinstance(event := self._inbox.get(), Ended):
                self._handle(event)
        finally:
            self._link.close()

    def _listen(self) -> None:
        for line in sys.stdin.buffer:
            self._inbox.put(decode_line(line))
        self._inbox.put(Ended())

    def _handle(self, event: Any) -> None:
        try:
            match event:
                case Arrived(topic, payload):
                    self._arrived(topic, payload)
                case Expect():
                    self._tell(*self._placing.expect(event))
                case LinkDown(downgrade=True):
                    self._tell(Unable(detail=OLD_BROKER))
                case NotGranted(_, reason):
                    self._tell(Unable(detail=f"the broker grants no shared subscription: {reason}"))
                case LinkUp():
                    self._link.handle(event)
                    self._tell(Ready())
                case _:
                    self._link.handle(event)
        except OSError as error:
            self._tell(NoRoom(errno=error.errno or 0, detail=str(error)))

    def _arrived(self, topic: str, payload: bytes) -> None:
        try:
            where = parse_topic(topic)
        except PeerError:
            # Where the broker asks nobody who it is, anyone may write there under any name.
            return
        if not isinstance(where, DeviceTopic) or where.channel is not Channel.UP_BLOB:
            return
        try:
            self._tell(*self._placing.take(where.device, decode_chunk(payload)))
        except PeerError as error:
            misfit = Misfit(
                device=where.device, reason=error.reason, detail=str(error)[:500], size=len(payload)
            )
            self._tell(misfit)

    def _tell(self, *told: ReceiverMessage | Placed) -> None:
        for one in told:
            sys.stdout.buffer.write(encode_line(one))
        sys.stdout.buffer.flush()


def main() -> None:
    """Receive as the first line on standard input says."""
    settings = json.loads(sys.stdin.buffer.readline())
    begin_inherited_log(logging.WARNING, federation=settings["federation"])
    Receiver(settings).run()


if __name__ == "__main__":
    main()
