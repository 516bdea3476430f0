"""Splits messages that exceed one packet of the broker into parts, and joins the parts.

A part begins with a magic number that neither JSON nor a chunk begins with. Blobs have chunks instead.
"""

import contextlib
import hashlib
import logging
import struct
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

import paho.mqtt.client as mqtt

from schemas.messages.message import MAX_MESSAGE_BYTES

log = logging.getLogger(__name__)

MAX_IN_FLIGHT = 16
SMALL_PAYLOAD = 12 * 1024  # Payloads up to this size in bytes count as small
MAX_LAST = 64  # Number of last messages for which a clean end waits


class Outbox:
    """What one client has published and the broker has not acknowledged, and the chunks that wait.

    A waiting chunk is read from disk only when the broker has acknowledged earlier ones, which bounds memory.
    """

    def __init__(self) -> None:
        self._waiting: deque[tuple[Hashable, str, Callable[[], bytes]]] = deque()
        self._keys: set[Hashable] = set()
        self._chunks: set[int] = set()
        self._messages: set[int] = set()
        self._sizes: dict[int, int] = {}
        self._last: deque[mqtt.MQTTMessageInfo] = deque(maxlen=MAX_LAST)

    def __len__(self) -> int:
        """Messages and chunks that the broker has not acknowledged."""
        return len(self._waiting) + len(self._chunks) + len(self._messages)

    @property
    def largest(self) -> int:
        """Bytes of the largest unacknowledged message; 0 if all are small."""
        return max(self._sizes.values(), default=0)

    def publish(self, client: mqtt.Client, topic: str, payload: bytes, *, retain: bool, qos: int) -> None:
        """Publish a message that fits a packet."""
        info = client.publish(topic, payload, qos=qos, retain=retain)
        self._last.append(info)
        if qos:
            self._note_size(info, len(payload) + len(topic))
        if qos and info.rc in (mqtt.MQTT_ERR_SUCCESS, mqtt.MQTT_ERR_NO_CONN):
            self._messages.add(info.mid)
        if info.rc == mqtt.MQTT_ERR_QUEUE_SIZE:
            about_it = {"reason": "too-many-wait"}
            log.warning("too many messages wait for the broker: one for %s is dropped", topic, extra=about_it)

    def add_chunk(self, key: Hashable, topic: str, read: Callable[[], bytes]) -> None:
        """Queue a chunk's frame, unless a frame of that key already waits."""
        if key not in self._keys:
            self._keys.add(key)
            self._waiting.append((key, topic, read))

    def send_chunks(self, client: mqtt.Client) -> None:
        """Publish waiting chunks while fewer than `MAX_IN_FLIGHT` are unacknowledged."""
        while self._waiting and len(self._chunks) < MAX_IN_FLIGHT and client.is_connected():
            key, topic, read = self._waiting.popleft()
            self._keys.discard(key)
            try:
                frame = read()
            except OSError as error:
                log.warning("a chunk for %s cannot be read: %s", topic, error)
                continue
            info = client.publish(topic, frame, qos=1)
            self._note_size(info, len(frame) + len(topic))
            if info.rc == mqtt.MQTT_ERR_SUCCESS:
                self._chunks.add(info.mid)

    def confirm(self, mid: int) -> None:
        self._chunks.discard(mid)
        self._messages.discard(mid)
        self._sizes.pop(mid, None)

    def on_reconnected(self) -> None:
        """Forget the chunks of the previous connection."""
        self._chunks.clear()

    def drop_messages(self) -> None:
        self._messages.clear()
        self._sizes.clear()

    def flush(self, client: mqtt.Client, timeout_s: float) -> None:
        """Wait until the broker has acknowledged the last messages, `timeout_s` seconds at most."""
        until = time.monotonic() + timeout_s
        for message in self._last:
            with contextlib.suppress(RuntimeError, ValueError):
                if client.is_connected():
                    message.wait_for_publish(max(0.0, until - time.monotonic()))

    def _note_size(self, info: mqtt.MQTTMessageInfo, size: int) -> None:
        if size > SMALL_PAYLOAD:
            self._sizes[info.mid] = size


_HEADER = struct.Struct("!2sBxII8s")
_MAGIC, _VERSION = b"EP", 1
PART_HEADER_BYTES = _HEADER.size
MAX_PARTS = 64
MAX_OPEN = 64  # Largest number of incomplete messages, one per topic; another one replaces the oldest


def split(payload: bytes, most: int | None) -> list[bytes]:
    """The payload, or its parts of at most `most` bytes if it is larger."""
    if most is None or len(payload) <= most:
        return [payload]
    room = most - PART_HEADER_BYTES
    parts = [payload[at : at + room] for at in range(0, len(payload), room)]
    name = hashlib.sha256(payload).digest()[:8]
    return [
        _HEADER.pack(_MAGIC, _VERSION, index, len(parts), name) + part for index, part in enumerate(parts)
    ]


@dataclass
class _Open:
    """An incomplete message."""

    name: bytes
    count: int
    parts: dict[int, bytes] = field(default_factory=dict)
    size: int = 0


class Parts:
    """Joins parts by topic; a new message on a topic replaces an incomplete one."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def __len__(self) -> int:
        return len(self._open)

    def take(self, topic: str, payload: bytes) -> bytes | None:
        """The whole message once its last part has arrived; a payload that is no part is already whole."""
        if not payload.startswith(_MAGIC + bytes([_VERSION])) or len(payload) < PART_HEADER_BYTES:
            return payload
        _, _, index, count, name = _HEADER.unpack_from(payload)
        if not index < count <= MAX_PARTS:
            return None
        begun = self._open.get(topic)
        if begun is None or (begun.name, begun.count) != (name, count):
            self._open.pop(topic, None)
            if len(self._open) >= MAX_OPEN:
                del self._open[next(iter(self._open))]
            begun = self._open[topic] = _Open(name, count)
        return self._with(topic, begun, index, payload[PART_HEADER_BYTES:])

    def _with(self, topic: str, begun: _Open, index: int, part: bytes) -> bytes | None:
        begun.size += len(part) if index not in begun.parts else 0
        begun.parts[index] = begun.parts.get(index, part)
        if begun.size > MAX_MESSAGE_BYTES:
            del self._open[topic]
            return None
        if len(begun.parts) < begun.count:
            return None
        del self._open[topic]
        whole = b"".join(begun.parts[number] for number in range(begun.count))
        return whole if hashlib.sha256(whole).digest()[:8] == begun.name else None
