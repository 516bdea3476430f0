"""What went over each device's link, as far as the server knows it and the device has said so.

The server knows what it sent to a device alone, and what came from it. Of a broadcast it knows what it
published while the device was there and listened: that counts, and is the most that the device may claim. Its
word, which comes with its result, lowers the figure where chunks were lost on their way, and adds what it
fetched from the object store, up to the size of the task's blobs. Bytes are MQTT payloads and blobs, without
the headers of MQTT, HTTP and TLS.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LinkBytes:
    """Bytes over one device's link: what it received and what it sent."""

    received: int = 0
    sent: int = 0


class IndirectTraffic:
    """Per device: bytes beside the messages between it and the server, `shared` with others or by the store.

    `stored` is what it put into the object store.
    """

    def __init__(self) -> None:
        self.shared: Counter[str] = Counter()
        self.stored: Counter[str] = Counter()
        self._unsettled: dict[str, tuple[int, int]] = {}
        self._fetched_for: dict[str, int] = {}

    def announced(self, devices: Iterable[str], size: int) -> None:
        """These devices were there when so many bytes were sent to all."""
        for device in devices:
            self.shared[device] += size

    def published(self, devices: Iterable[str], attempt: int, size: int) -> None:
        """These devices listened when so many bytes of an attempt's broadcast were published."""
        for device in devices:
            known, before = self._unsettled.get(device, (attempt, 0))
            self._unsettled[device] = attempt, size + (before if known == attempt else 0)
            self.shared[device] += size

    def claimed(
        self, device: str, attempt: int, *, heard: int | None, fetched: int | None, most_fetched: int
    ) -> None:
        """A device says what reached it in an attempt; only its first word on each counts."""
        if heard is not None and self._unsettled.get(device, (0, 0))[0] == attempt:
            _, published = self._unsettled.pop(device)
            self.shared[device] -= max(0, published - heard)
        if fetched and attempt > self._fetched_for.get(device, 0):
            self._fetched_for[device] = attempt
            self.shared[device] += min(fetched, most_fetched)

    def restore(self, traffic: Mapping[str, Any]) -> None:
        """Go on from the counts of a run that was cut off."""
        self.shared.update(traffic.get("shared", {}))
        self.stored.update(traffic.get("stored", {}))


def link_bytes(traffic: Mapping[str, Any], device: str) -> LinkBytes:
    """A device's figures in the counts of a run, as `Tally.traffic` gives them and the journal keeps them."""
    received, sent = (
        sum(int(traffic.get(part, {}).get(device, 0)) for part in parts)
        for parts in (("downlink", "shared"), ("uplink", "stored"))
    )
    return LinkBytes(received, sent)
