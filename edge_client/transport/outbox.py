"""Messages and chunks on their way to the broker."""

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Hashable

import paho.mqtt.client as mqtt

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
