"""Bytes over each device's link, from the server's counts and the device's reports.

The server counts what it sends to a single device and what it receives. Of a broadcast it counts what it
published while the device was connected and listened; a device cannot report more. Its report, which comes
with its result, lowers that count if chunks were lost, and adds what it fetched from the object store, up to
the size of the task's blobs. Bytes are MQTT payloads and blobs, without headers of MQTT, HTTP and TLS.
"""

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
    """Per device, bytes not exchanged directly with the server.

    `shared`: received from broadcasts or from the object store; `stored`: put into the object store.
    """

    def __init__(self) -> None:
        self.shared: Counter[str] = Counter()
        self.stored: Counter[str] = Counter()
        self._unsettled: dict[str, tuple[int, int]] = {}
        self._fetched_for: dict[str, int] = {}

    def count_announced(self, devices: Iterable[str], size: int) -> None:
        """Count `size` bytes sent to all devices while these were connected."""
        for device in devices:
            self.shared[device] += size

    def count_published(self, devices: Iterable[str], attempt: int, size: int) -> None:
        """Count `size` bytes of an attempt's broadcast, published while these devices listened."""
        for device in devices:
            known, before = self._unsettled.get(device, (attempt, 0))
            self._unsettled[device] = attempt, size + (before if known == attempt else 0)
            self.shared[device] += size

    def count_claim(
        self, device: str, attempt: int, *, heard: int | None, fetched: int | None, most_fetched: int
    ) -> None:
        """Take a device's report of what it received in an attempt; only the first report counts."""
        if heard is not None and self._unsettled.get(device, (0, 0))[0] == attempt:
            _, published = self._unsettled.pop(device)
            self.shared[device] -= max(0, published - heard)
        if fetched and attempt > self._fetched_for.get(device, 0):
            self._fetched_for[device] = attempt
            self.shared[device] += min(fetched, most_fetched)

    def restore(self, traffic: Mapping[str, Any]) -> None:
        self.shared.update(traffic.get("shared", {}))
        self.stored.update(traffic.get("stored", {}))


def link_bytes(traffic: Mapping[str, Any], device: str) -> LinkBytes:
    received, sent = (
        sum(int(traffic.get(part, {}).get(device, 0)) for part in parts)
        for parts in (("downlink", "shared"), ("uplink", "stored"))
    )
    return LinkBytes(received, sent)
