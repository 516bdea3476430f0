"""What the broker remembers of one client: subscriptions, unacknowledged and waiting messages, its will."""

from collections import deque
from dataclasses import dataclass, field, fields

from edge_server.transport.broker import packets, properties, wire
from edge_server.transport.broker.properties import Prop, Property
from schemas.errors import ConfigError

# The limits of a broker process, which keep a peer from taking all memory.

# A packet's length has four bytes of seven bits.
LARGEST_PACKET = (1 << 28) - 1


def _limit(default: int, meaning: str) -> int:
    bound: int = field(default=default, metadata={"help": meaning})
    return bound


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds of one broker; bytes, seconds or counts, as each name says; ConfigError for impossible ones."""

    connections: int = _limit(2_000, "open connections; one more is closed at once")
    sessions: int = _limit(10_000, "client identifiers remembered, connected or not")
    connect_seconds: int = _limit(10, "time a new connection has for its CONNECT")
    packet_bytes: int = _limit(1 << 20, "largest packet taken; announced to MQTT 5 clients")
    output_bytes: int = _limit(
        16 << 20, "unsent output per client; beyond it QoS 0 is dropped and QoS 1 waits"
    )
    queue_bytes: int = _limit(64 << 20, "QoS 1 payload that waits for one client")
    queue_messages: int = _limit(10_000, "QoS 1 messages that wait for one client")
    inflight: int = _limit(20, "unacknowledged QoS 1 messages per client")
    subscriptions: int = _limit(1_000, "topic filters per client")
    retained_bytes: int = _limit(256 << 20, "all retained messages together")
    retained_messages: int = _limit(50_000, "topics with a retained message")
    session_seconds: int = _limit(7 * 86_400, "longest life of a session without its client")

    def __post_init__(self) -> None:
        for limit in fields(self):
            if getattr(self, limit.name) < 1:
                raise ConfigError(f"{limit.name} is {getattr(self, limit.name)}, but must be at least 1")
        if self.packet_bytes > LARGEST_PACKET:
            raise ConfigError(f"packet_bytes is {self.packet_bytes}, but MQTT ends at {LARGEST_PACKET}")


# An MQTT 5 session expiry of this many seconds means "never".
NEVER_EXPIRES = 0xFFFF_FFFF


@dataclass(frozen=True, slots=True)
class Message:
    """An application message on its way; every receiver shares its one payload.

    `block` holds its MQTT 5 properties without the expiry, `expires_at` is in seconds of the broker's clock.
    """

    topic: bytes
    payload: memoryview
    qos: int
    block: bytes = b""
    expires_at: float | None = None

    @property
    def size(self) -> int:
        """Bytes that holding this message costs."""
        return len(self.topic) + len(self.payload) + len(self.block)

    def is_expired(self, now: float) -> bool:
        return self.expires_at is not None and self.expires_at <= now

    def properties(self, now: float) -> bytes:
        """Return the MQTT 5 property block, with the seconds that are left to the message."""
        block = self.block
        if self.expires_at is not None:
            left = max(1, round(self.expires_at - now))
            block += properties.encode((Property(Prop.MESSAGE_EXPIRY, left),))
        return wire.varint(len(block)) + block


def new_message(
    topic: str, payload: bytes | memoryview, qos: int, values: properties.Properties, now: float
) -> Message:
    """Return the message of a PUBLISH or a will that arrives now."""
    life = properties.number(values, Prop.MESSAGE_EXPIRY, -1)
    kept = [item for item in values if item.key not in (Prop.MESSAGE_EXPIRY, Prop.WILL_DELAY)]
    expires_at = now + life if life >= 0 else None
    return Message(topic.encode(), memoryview(payload), qos, properties.encode(kept), expires_at)


@dataclass(frozen=True, slots=True)
class Subscription:
    qos: int
    no_local: bool


@dataclass(frozen=True, slots=True)
class Delivery:
    """One message for one client, at the QoS that the two agree on."""

    message: Message
    retain: bool
    packet_id: int = 0
    dup: bool = False


class Session:
    """The state of one client identifier; it outlives connections for `expiry_s` seconds."""

    def __init__(self, client_id: str, limits: Limits) -> None:
        self.client_id = client_id
        self.subscriptions: dict[str, Subscription] = {}
        self.expiry_s = 0.0
        self.ends_at: float | None = None
        self.will: packets.Will | None = None
        self.will_due_at: float | None = None
        self.dropped = 0
        self._limits = limits
        self._window = limits.inflight
        self._last_id = 0
        self._inflight: dict[int, Delivery] = {}
        self._again: deque[int] = deque()
        self._queue: deque[Delivery] = deque()
        self._queued_bytes = 0

    def resume(self, receive_maximum: int) -> None:
        """A client took the session up: repeat, in order, what the last connection left unacknowledged."""
        self._window = min(receive_maximum, self._limits.inflight)
        self._again = deque(self._inflight)
        self.ends_at = self.will_due_at = None

    def suspend(self, now: float) -> None:
        self._again.clear()
        self.ends_at = now + self.expiry_s
        if self.will is not None:
            # Never later than the session's end.
            delay = properties.number(self.will.properties, Prop.WILL_DELAY, 0)
            self.will_due_at = now + min(delay, self.expiry_s)

    def offer(self, delivery: Delivery) -> bool:
        """Queue a QoS 1 message; False, and it is dropped, where the queue is full."""
        full = len(self._queue) >= self._limits.queue_messages
        if full or self._queued_bytes + delivery.message.size > self._limits.queue_bytes:
            self.dropped += 1
            return False
        self._queue.append(delivery)
        self._queued_bytes += delivery.message.size
        return True

    def next_delivery(self, now: float) -> Delivery | None:
        """Return the message to send next: what must be repeated, then the queue as the window allows."""
        if len(self._inflight) - len(self._again) >= self._window:
            return None
        if self._again:
            return self._repeat()
        while self._queue:
            waiting = self._queue.popleft()
            self._queued_bytes -= waiting.message.size
            if not waiting.message.is_expired(now):
                packet_id = self._free_id()
                delivery = Delivery(waiting.message, waiting.retain, packet_id)
                self._inflight[packet_id] = delivery
                return delivery
        return None

    def acknowledge(self, packet_id: int) -> None:
        """The client has this message, or can never take it: forget it."""
        self._inflight.pop(packet_id, None)
        if packet_id in self._again:
            self._again.remove(packet_id)

    def _repeat(self) -> Delivery:
        delivery = self._inflight[self._again.popleft()]
        return Delivery(delivery.message, delivery.retain, delivery.packet_id, dup=True)

    def _free_id(self) -> int:
        while True:
            self._last_id = self._last_id % 0xFFFF + 1
            if self._last_id not in self._inflight:
                return self._last_id
