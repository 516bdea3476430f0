"""What is said when: only what has changed, not too much at once, and of one thing not too often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SPACING_S = 5.0
"""So long at least between two states of one device."""
MOST_PER_S = 100.0
"""Messages; a thousand devices that are all new take 40 seconds."""


@dataclass(frozen=True)
class SentMessages:
    """What lies on each topic, and since when in seconds; `allowance` messages may go now."""

    said: Mapping[str, bytes] = field(default_factory=dict)
    at: Mapping[str, float] = field(default_factory=dict)
    allowance: float = 0.0
    asked_at: float | None = None


def due(
    outbox: SentMessages, wanted: Mapping[str, bytes], now: float
) -> tuple[SentMessages, list[tuple[str, bytes]]]:
    """The messages to send now: what is new, what has waited longest first; the rest another time.

    Whether a device is there, and what is to be forgotten, waits for nothing but the bound on all.
    """
    since = 1.0 if outbox.asked_at is None else now - outbox.asked_at
    allowance = min(MOST_PER_S, outbox.allowance + since * MOST_PER_S)
    new = [
        topic
        for topic, payload in wanted.items()
        if outbox.said.get(topic) != payload and now >= _earliest(outbox, topic, payload)
    ]
    new.sort(key=lambda topic: outbox.at.get(topic, -1.0))
    chosen = new[: int(allowance)]
    said = {**outbox.said, **{topic: wanted[topic] for topic in chosen}}
    at = {**outbox.at, **dict.fromkeys(chosen, now)}
    left = replace(outbox, said=said, at=at, allowance=allowance - len(chosen), asked_at=now)
    return left, [(topic, wanted[topic]) for topic in chosen]


def forgotten(outbox: SentMessages) -> SentMessages:
    """The broker may have lost what lay there: all is said again, no faster than ever."""
    return replace(outbox, said={}, at={})


def _earliest(outbox: SentMessages, topic: str, payload: bytes) -> float:
    if not payload or not topic.endswith("/state"):
        return 0.0
    return outbox.at.get(topic, -SPACING_S) + SPACING_S
