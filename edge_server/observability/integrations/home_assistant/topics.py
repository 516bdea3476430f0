"""The topics that Home Assistant reads, and the one that it writes.

PREFIX/device/FEDERATION/DEVICE/config                retained: discovery message of the device
fed/v1/FEDERATION/home/status                         retained: online while a server runs; else its last will
fed/v1/FEDERATION/home/devices/DEVICE/availability    retained: online or offline
fed/v1/FEDERATION/home/devices/DEVICE/state           retained: JSON, one key per sensor
fed/v1/FEDERATION/home/devices/DEVICE/update          retained: JSON, the installed and the approved model
fed/v1/FEDERATION/home/devices/DEVICE/install         written by Home Assistant's Install button
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from edge_server.config.object_store import identifier, name_of
from schemas.base import is_name
from schemas.topics import ROOT, Channel, DeviceTopic

# Which messages to publish now: only changed ones, limited per second and per device.

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


INSTALL = b"install"
Kind = Literal["birth", "config", "install"]


@dataclass(frozen=True)
class HomeAssistantTopics:
    """The topics of one federation, below Home Assistant's `prefix` and the federation's own root."""

    federation: str
    prefix: str = "homeassistant"

    @property
    def status(self) -> str:
        return f"{ROOT}/{self.federation}/home/status"

    def config(self, device: str) -> str:
        return f"{self.prefix}/device/{identifier(self.federation)}/{identifier(device)}/config"

    def of(self, device: str, part: Literal["availability", "state", "update", "install"]) -> str:
        return f"{ROOT}/{self.federation}/home/devices/{device}/{part}"

    def all_of(self, device: str) -> tuple[str, ...]:
        """Every topic with a retained message of a device."""
        return (
            self.config(device),
            self.of(device, "availability"),
            self.of(device, "state"),
            self.of(device, "update"),
        )

    @property
    def filters(self) -> tuple[str, ...]:
        """The subscriptions: births of devices, their discovery messages, the Install button."""
        return (
            f"{ROOT}/{self.federation}/devices/+/{Channel.BIRTH}",
            f"{self.prefix}/device/{identifier(self.federation)}/+/config",
            f"{ROOT}/{self.federation}/home/devices/+/install",
        )

    def parse(self, topic: str) -> tuple[Kind, str] | None:
        """The kind of a topic and its device; None for any other topic."""
        parts = topic.split("/")
        candidates: tuple[tuple[Kind, str], ...] = (
            ("birth", parts[-3] if len(parts) > 3 else ""),
            ("install", parts[-2] if len(parts) > 2 else ""),
            ("config", name_of(parts[-2]) if len(parts) > 2 else ""),
        )
        for kind, device in candidates:
            if is_name(device) and topic == self._topic(kind, device):
                return kind, device
        return None

    def _topic(self, kind: Kind, device: str) -> str:
        if kind == "birth":
            return str(DeviceTopic(self.federation, device, Channel.BIRTH))
        return self.config(device) if kind == "config" else self.of(device, "install")
