"""Which messages to publish now: only changed ones, limited per second and per device."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SPACING_S = 5.0  # Minimum seconds between two state messages of one device
MAX_PER_S = 100.0  # Maximum messages per second; a thousand new devices take 40 seconds


@dataclass(frozen=True)
class SentMessages:
    """The last payload of each topic and when it was sent (seconds); `allowance` messages may be sent now."""

    payloads: Mapping[str, bytes] = field(default_factory=dict)
    sent_at: Mapping[str, float] = field(default_factory=dict)
    allowance: float = 0.0
    checked_at: float | None = None


def due(
    sent: SentMessages, wanted: Mapping[str, bytes], now: float
) -> tuple[SentMessages, list[tuple[str, bytes]]]:
    """The messages to send now: new topics first, then those sent longest ago, within the allowance.

    Availability and clearing messages are only subject to the total limit.
    """
    since = 1.0 if sent.checked_at is None else now - sent.checked_at
    allowance = min(MAX_PER_S, sent.allowance + since * MAX_PER_S)
    changed = [
        topic
        for topic, payload in wanted.items()
        if sent.payloads.get(topic) != payload and now >= _earliest(sent, topic, payload)
    ]
    changed.sort(key=lambda topic: sent.sent_at.get(topic, -1.0))
    chosen = changed[: int(allowance)]
    after = replace(
        sent,
        payloads={**sent.payloads, **{topic: wanted[topic] for topic in chosen}},
        sent_at={**sent.sent_at, **dict.fromkeys(chosen, now)},
        allowance=allowance - len(chosen),
        checked_at=now,
    )
    return after, [(topic, wanted[topic]) for topic in chosen]


def forget_sent(sent: SentMessages) -> SentMessages:
    """Send everything again, within the limit: the broker may have lost its retained messages."""
    return replace(sent, payloads={}, sent_at={})


def _earliest(sent: SentMessages, topic: str, payload: bytes) -> float:
    if not payload or not topic.endswith("/state"):
        return 0.0
    return sent.sent_at.get(topic, -SPACING_S) + SPACING_S
