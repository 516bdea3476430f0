"""What a server publishes, every byte of it counted."""

from __future__ import annotations

from functools import partial

from edge_client.blobstore import BlobStore
from edge_client.link import Link
from edge_server.round_events import Publish, SendChunks
from edge_server.tally import ALL, Tally
from schemas.blobs import CHUNK_HEADER_BYTES
from schemas.messages import Message, encode_message
from schemas.topics import Channel, DeviceTopic, LayerTopic, StateTopic


class Outgoing:
    """Messages and chunks on the topics of one federation."""

    def __init__(self, federation: str, link: Link, store: BlobStore, tally: Tally) -> None:
        self._federation, self._link, self._store, self._tally = federation, link, store, tally
        self._announced: Message | None = None

    def announce(self, message: Message) -> None:
        """Tell all, now and whenever they come."""
        self._announced = message
        self._link.publish(str(StateTopic(self._federation)), encode_message(message), retain=True)

    def announce_again(self) -> None:
        """Say it once more: a broker without persistence has forgotten it."""
        if self._announced is not None:
            self.announce(self._announced)

    def send(self, device: str, message: Message) -> None:
        """Tell one device."""
        payload = encode_message(message)
        self._tally.sent(device, len(payload))
        self._link.publish(self._topic(device, Channel.DOWN), payload)

    def send_chunks(self, command: SendChunks) -> None:
        """Send one device what it has asked for."""
        device, ref = command.device, command.ref
        for index in range(command.first, min(command.first + command.count, ref.chunks)):
            self._tally.sent(device, ref.chunk_size(index) + CHUNK_HEADER_BYTES)
            self._link.send_chunk(
                (device, ref.digest, index),
                self._topic(device, Channel.DOWN_BLOB),
                partial(self._store.read_frame, ref, index),
            )

    def publish(self, command: Publish) -> None:
        """Once for all who listen; what gets lost, on its way or because there is no link, is asked for."""
        topic = str(LayerTopic(self._federation, command.channel))
        for index in range(command.first, command.first + command.count):
            frame = self._store.read_frame(command.ref, index)
            self._tally.sent(ALL, len(frame))
            self._link.publish(topic, frame, qos=0)

    def _topic(self, device: str, channel: Channel) -> str:
        return str(DeviceTopic(self._federation, device, channel))
