"""Publishing messages and chunks, and counting their bytes."""

import contextlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import partial, wraps
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from edge_client.storage.blob_store import BlobStore
from edge_client.transport.mqtt_client import Link
from edge_client.transport.object_store.http import HttpClient
from edge_server.config.object_store import EMBEDDED, ObjectStoreSettings
from edge_server.observability.counters import RunCounters
from edge_server.rounds.events import Publish, SendChunks
from edge_server.transport.object_store import http_service, signed_urls
from edge_server.transport.object_store.store import ObjectStore
from schemas.base import site_of
from schemas.messages import Message, encode_message
from schemas.tensors.chunks import CHUNK_HEADER_BYTES, BlobRef
from schemas.topics import Channel, SharedTopic, SiteTopic, StateTopic, device_topic

PATIENCE_S = 15.0


@contextlib.contextmanager
def open_object_store(settings: ObjectStoreSettings, folder: Path) -> Iterator[ObjectStore | None]:
    """The object store, None if the file names none; an embedded one keeps its objects in `folder`.

    Raises `ConfigError` for an unusable secret or S3 client.
    """
    if settings.store is None:
        yield None
    elif settings.store == EMBEDDED:
        key = secrets.token_bytes(signed_urls.KEY_BYTES)
        with http_service.serve_objects(folder, key) as address:
            yield _object_store(settings, signed_urls.HmacUrlSigner(address, key))
    else:
        yield _object_store(settings, _url_signer(settings, settings.store))


def _object_store(settings: ObjectStoreSettings, signer: signed_urls.UrlSigner) -> ObjectStore:
    web = HttpClient(ca=settings.ca, timeout_s=PATIENCE_S)
    above = int(settings.threshold_mb * 10**6)
    return ObjectStore(signer, web, above=above, seconds=settings.url_minutes * 60)


def _url_signer(settings: ObjectStoreSettings, store: str) -> signed_urls.UrlSigner:
    parts = urlsplit(store)
    if parts.scheme == "s3":
        return signed_urls.S3UrlSigner(parts.netloc, parts.path, settings.endpoint)
    assert settings.secret is not None
    return signed_urls.HmacUrlSigner(store, signed_urls.read_secret(settings.secret))


log = logging.getLogger(__name__)

MAX_STRANGERS, WINDOW_S = 500, 10.0
"""The most messages to devices that are not in the fleet, per window of seconds."""
Tagged = Callable[[Message], Message]  # Gives a message, for one device or for all (None), the server's epoch
Request = TypeVar("Request")


def _through_gate(send: "Callable[[Publisher, Request], None]") -> "Callable[[Publisher, Request], None]":
    """A method that the publisher's gate calls when something may be sent."""

    @wraps(send)
    def wait(publisher: "Publisher", command: Request) -> None:
        publisher.gate(partial(send, publisher, command))

    return wait


class Publisher:
    """Publishes on the topics of one federation; calls `unreadable` with the digest of a damaged blob.

    `tagged` gives messages the server's epoch; `gate` decides when something is sent, and keeps the order.
    What is for a device of one of the `sites` goes to the site's gateway.
    """

    def __init__(
        self,
        federation: str,
        link: Link,
        store: BlobStore,
        counters: RunCounters,
        unreadable: Callable[[str], None] = lambda digest: None,
        tagged: Tagged = lambda message: message,
        gate: Callable[[Callable[[], None]], None] = lambda send: send(),
        sites: Collection[str] = (),
    ) -> None:
        self._sites = sites
        self._federation, self._link, self._store, self._counters = federation, link, store, counters
        self._unreadable, self._tagged, self.gate = unreadable, tagged, gate
        self._announced: Message | None = None
        self._strangers = RateLimit(MAX_STRANGERS, WINDOW_S)

    def announce(self, message: Message, present: Iterable[str] = ()) -> None:
        """Publish a retained message for all devices; those that are `present` receive it now."""
        self._announced = message
        payload = encode_message(self._tagged(message))
        self._counters.count_announced(present, len(payload))
        topic = str(StateTopic(self._federation))
        self.gate(lambda: self._link.publish(topic, payload, retain=True))

    def announce_again(self) -> None:
        """Publish the last announcement again: a broker without persistence has forgotten it."""
        if self._announced is not None:
            self.announce(self._announced)

    def send(self, device: str, message: Message) -> None:
        self._send(device, self._topic(device, Channel.DOWN), message)

    def send_to_site(self, site: str, message: Message) -> None:
        """Send a message to a site's gateway, about the site itself."""
        self._send(site, str(SiteTopic(self._federation, site, Channel.DOWN)), message)

    def _send(self, to: str, topic: str, message: Message) -> None:
        payload = encode_message(self._tagged(message))
        self._counters.count_sent(to, len(payload))
        self.gate(lambda: self._link.publish(topic, payload))

    def may_answer_stranger(self) -> bool:
        """Whether one more message may go to a name that is not in the fleet, which may be invented."""
        return self._strangers.allows(time.monotonic())

    @_through_gate
    def send_chunks(self, command: SendChunks) -> None:
        """Send a device the chunks that it has asked for; a gateway fetches what its devices need once."""
        device, ref = command.device, command.ref
        if command.pushed and site_of(device, self._sites):
            return
        for index in range(command.first, min(command.first + command.count, ref.chunks)):
            self._counters.count_sent(device, ref.chunk_size(index) + CHUNK_HEADER_BYTES)
            self._link.send_chunk(
                (device, ref.digest, index),
                self._topic(device, Channel.DOWN_BLOB),
                partial(self._read, ref, index),
            )

    @_through_gate
    def publish(self, command: Publish) -> None:
        """Publish chunks once for all listeners at QoS 0; devices ask for chunks that are lost."""
        topic = str(SharedTopic(self._federation, command.channel))
        for index in range(command.first, command.first + command.count):
            try:
                frame = self._read(command.ref, index)
            except OSError as error:
                log.warning("a chunk for all cannot be read: %s", error)
                return
            self._counters.count_published(command.listeners, command.attempt, len(frame))
            self._link.publish(topic, frame, qos=0)

    def _read(self, ref: BlobRef, index: int) -> bytes:
        """A chunk with its header; raises `OSError` if it is missing, after calling `unreadable`."""
        try:
            frame = self._store.read_frame(ref, index)
        except OSError:
            self._unreadable(ref.digest)
            raise
        if len(frame) != ref.chunk_size(index) + CHUNK_HEADER_BYTES:
            self._unreadable(ref.digest)
            raise OSError(f"{self._store.blob_path(ref.digest)} is too short")
        return frame

    def _topic(self, device: str, channel: Channel) -> str:
        return str(device_topic(self._federation, device, channel, site_of(device, self._sites)))


class RateLimit:
    """At most `most` times per `seconds`; the caller passes the time."""

    def __init__(self, most: int, seconds: float) -> None:
        self._most, self._seconds = most, seconds
        self._since, self._count = 0.0, 0

    def allows(self, now: float) -> bool:
        """Whether it may be done once more at `now`, in seconds; counts it."""
        if now >= self._since + self._seconds:
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= self._most
