"""The topics of one device: messages out, messages decoded."""

from collections.abc import Iterable
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.mqtt_client import Link
from schemas.errors import PeerError
from schemas.messages import AnyMessage, Message, Refusal, decode_message, encode_message
from schemas.tensors.chunks import BlobRef
from schemas.topics import Channel, DeviceTopic, SharedTopic


class Messenger:
    """Publishes on the topics of one device and decodes the messages that arrive on them."""

    def __init__(self, link: Link, federation: str, device: str) -> None:
        self._link, self._federation, self._device = link, federation, device

    def publish(self, channel: Channel, message: Message, *, retain: bool = False, qos: int = 1) -> None:
        """Publish a message, at least once unless `qos` is 0."""
        self._link.publish(self._topic(channel), encode_message(message), retain=retain, qos=qos)

    def publish_chunks(self, store: BlobStore, ref: BlobRef, indices: Iterable[int]) -> None:
        """Queue chunks of a blob; each is read from the store when its turn comes."""
        for index in indices:
            read = partial(store.read_frame, ref, index)
            self._link.send_chunk((ref.digest, index), self._topic(Channel.UP_BLOB), read)

    def subscribe(self, numbers: Iterable[int]) -> None:
        """Subscribe to exactly these shared topics."""
        self._link.listen(frozenset(str(SharedTopic(self._federation, number)) for number in numbers))

    def limit_chunks(self, chunk_bytes: int) -> None:
        """Send larger messages in parts of this many bytes."""
        self._link.fit(chunk_bytes)

    def decode(self, payload: bytes) -> AnyMessage:
        """Decode a message; one that is invalid is refused to the server and raises `PeerError`."""
        try:
            return decode_message(payload, federation=self._federation)
        except PeerError as error:
            self.refuse(error)
            raise

    def refuse(self, error: PeerError) -> None:
        """Tell the server why a message of its was refused."""
        self.publish(Channel.UP, Refusal.of(error, self._federation, self._device))

    def _topic(self, channel: Channel) -> str:
        return str(DeviceTopic(self._federation, self._device, channel))
