"""The two connections of a gateway: to what is above, and to the broker of its site."""

import logging
from dataclasses import dataclass
from functools import partial

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import BrokerAddress, Inbox, LinkEvent, TaggedInbox
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.publisher import MAX_STRANGERS, WINDOW_S, RateLimit
from edge_server.transport.broker_connection import LONGEST_DELAY_S, BrokerConnection
from schemas import messages, topics
from schemas.messages.remote import DiagnosticAnswer
from schemas.tensors.chunks import CHUNK_SIZES, BlobRef, Chunk, chunk_header

log = logging.getLogger(__name__)

RETAINED = (messages.Birth, messages.Death, messages.SiteBirth, messages.SiteDeath)


@dataclass(frozen=True)
class FromAbove:
    """Event: something has happened on the connection to what is above."""

    event: LinkEvent


@dataclass(frozen=True)
class FromBelow:
    """Event: something has happened on the connection to the site's broker."""

    event: LinkEvent


class LinkAbove:
    """The connection to what is above; its last will takes the site's devices away with the gateway.

    `received` and `sent` are bytes of payloads.
    """

    def __init__(
        self,
        address: BrokerAddress,
        inbox: Inbox,
        *,
        federation: str,
        site: str,
        session: int,
        store: BlobStore,
    ) -> None:
        self._federation, self._site, self._store = federation, site, store
        self.address, self.received, self.sent = address, 0, 0
        self.link = Link(
            address,
            TaggedInbox(inbox, FromAbove),  # type: ignore[arg-type]
            client_id=f"{federation}-site-{site}",
            filters=topics.gateway_filters(federation, site),
            will=self._will,
            first_session=session,
            longest_delay_s=LONGEST_DELAY_S,
        )
        self.link.fit(CHUNK_SIZES[-1])

    def _will(self, session: int) -> tuple[str, bytes]:
        death = messages.SiteDeath(federation=self._federation, site=self._site, session=session)
        return self._topic(topics.Channel.BIRTH, ""), messages.encode_message(death)

    def tell(self, message: messages.Message, device: str) -> None:
        """Publish in the name of a device, or of the site itself."""
        payload = messages.encode_message(message)
        self.sent += len(payload)
        retain = isinstance(message, RETAINED)
        channel = topics.Channel.BIRTH if retain else topics.Channel.UP
        if isinstance(message, DiagnosticAnswer):
            channel = topics.Channel.UP_FLEET
        qos = 0 if isinstance(message, messages.Telemetry) else 1
        self.link.publish(self._topic(channel, device), payload, retain=retain, qos=qos)

    def send_chunks(self, ref: BlobRef, first: int, count: int, device: str) -> None:
        for index in range(first, min(first + count, ref.chunks)):
            self.sent += ref.chunk_size(index)
            read = partial(self._store.read_frame, ref, index)
            self.link.send_chunk(
                (device, ref.digest, index), self._topic(topics.Channel.UP_BLOB, device), read
            )

    def pass_on(self, device: str, chunk: Chunk) -> None:
        self.sent += len(chunk.data)
        topic = self._topic(topics.Channel.UP_BLOB, device)
        self.link.send_chunk((device, chunk.prefix, chunk.index), topic, partial(_frame, chunk))

    def _topic(self, channel: topics.Channel, device: str) -> str:
        return str(topics.SiteTopic(self._federation, self._site, channel, device))


def _frame(chunk: Chunk) -> bytes:
    from zlib import crc32

    data = bytes(chunk.data)
    crc = crc32(data) if chunk.crc is None else chunk.crc
    return chunk_header(chunk.prefix, chunk.index, crc) + data


class LinkBelow:
    """The connection to the site's broker, on which the gateway is the server."""

    def __init__(self, address: BrokerAddress, inbox: Inbox, *, federation: str, store: BlobStore) -> None:
        self._federation, self._store = federation, store
        self.connection = BrokerConnection(
            address,
            TaggedInbox(inbox, FromBelow),  # type: ignore[arg-type]
            federation=federation,
            role="server",
            filters=(*topics.server_filters(federation), *topics.site_filters(federation)),
        )
        self.link = self.connection.link
        self.link.fit(CHUNK_SIZES[-1])
        self._announced: messages.Message | None = None
        self._strangers = RateLimit(MAX_STRANGERS, WINDOW_S)

    def announce(self, message: messages.Message) -> None:
        self._announced = message
        self.link.publish(
            str(topics.StateTopic(self._federation)), messages.encode_message(message), retain=True
        )

    def announce_again(self) -> None:
        """Publish the last announcement again, for a broker that has forgotten it."""
        if self._announced is not None:
            self.announce(self._announced)

    def tell(self, message: messages.Message, device: str, site: str = "") -> None:
        """Publish to a device, through the gateway of a site within this one if it has one."""
        channel = (
            topics.Channel.DOWN_FLEET
            if isinstance(message, messages.DiagnosticRequest)
            else topics.Channel.DOWN
        )
        self.link.publish(self._topic(channel, device, site), messages.encode_message(message))

    def tell_stranger(self, message: messages.Message, device: str, now: float) -> None:
        """Publish to a client that is no device of the site, at a limited rate."""
        if self._strangers.allows(now):
            self.tell(message, device)

    def send_chunk(self, ref: BlobRef, index: int, device: str, site: str = "") -> None:
        read = partial(self._store.read_frame, ref, index)
        topic = self._topic(topics.Channel.DOWN_BLOB, device, site)
        self.link.send_chunk((device, ref.digest, index), topic, read)

    def _topic(self, channel: topics.Channel, device: str, site: str) -> str:
        return str(topics.device_topic(self._federation, device, channel, site))
