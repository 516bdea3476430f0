"""The limits of a broker process, which keep a peer from taking all memory."""

from dataclasses import dataclass, field, fields

from schemas.errors import ConfigError

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
