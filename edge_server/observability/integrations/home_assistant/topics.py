"""The topics that Home Assistant reads, and the one that it writes.

PREFIX/device/FEDERATION/DEVICE/config                retained: discovery message of the device
fed/v1/FEDERATION/home/status                         retained: online while a server runs; else its last will
fed/v1/FEDERATION/home/devices/DEVICE/availability    retained: online or offline
fed/v1/FEDERATION/home/devices/DEVICE/state           retained: JSON, one key per sensor
fed/v1/FEDERATION/home/devices/DEVICE/update          retained: JSON, the installed and the approved model
fed/v1/FEDERATION/home/devices/DEVICE/install         written by Home Assistant's Install button
"""

from dataclasses import dataclass
from typing import Literal

from edge_server.config.integrations import identifier, name_of
from schemas.names import is_name
from schemas.topics import ROOT, Channel, DeviceTopic

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
