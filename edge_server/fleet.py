"""The devices that the server knows: births, deaths by last will, and which of them are there now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_server.known_devices import KnownDevices
from schemas.messages import Birth, Death
from schemas.values import CapabilityProfile, DataCard, Eligibility

MAX_DEVICES = 50_000
"""More are not taken: where nothing says who may speak, anyone may make up names."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its last birth described it; `lost_at` is when its last will came, in seconds.

    One whose `eligibility` is another than to train is not asked to, for the reason in words.
    """

    name: str
    session: int
    profile: CapabilityProfile
    data: DataCard
    lost_at: float | None = None
    eligibility: Eligibility = Eligibility.TRAIN
    ineligible_because: str = ""

    @property
    def able(self) -> bool:
        """Whether the device is connected and its owner lets it train."""
        return self.alive and self.eligibility is Eligibility.TRAIN

    @property
    def alive(self) -> bool:
        """Whether the device is connected, as far as the broker has told."""
        return self.lost_at is None


@dataclass(frozen=True)
class Fleet:
    """All devices by name, at most `most`."""

    devices: Mapping[str, Device] = field(default_factory=dict)
    most: int = field(default_factory=lambda: MAX_DEVICES)

    def has_room_for(self, device: str) -> bool:
        """Whether the device is known, or one more may be."""
        return device in self.devices or len(self.devices) < self.most

    def alive(self) -> tuple[Device, ...]:
        """The devices that are connected, by name."""
        return tuple(device for _, device in sorted(self.devices.items()) if device.alive)

    def able(self) -> tuple[Device, ...]:
        """The devices that may be asked to train, by name."""
        return tuple(device for _, device in sorted(self.devices.items()) if device.able)

    def born(self, birth: Birth) -> Fleet:
        """Take a birth; one of an older session than the known one changes nothing."""
        known = self.devices.get(birth.device)
        if known is not None and birth.session < known.session:
            return self
        device = Device(
            birth.device,
            birth.session,
            birth.profile,
            birth.data,
            eligibility=birth.eligibility,
            ineligible_because=birth.ineligible_because,
        )
        return self._with(device)

    def died(self, death: Death, now: float) -> Fleet:
        """Take a last will; one of an older session cannot end a newer one."""
        known = self.devices.get(death.device)
        if known is None or not known.alive or death.session < known.session:
            return self
        return self._with(replace(known, lost_at=now))

    def _with(self, device: Device) -> Fleet:
        known = self.devices if isinstance(self.devices, KnownDevices) else KnownDevices(self.devices)
        return replace(self, devices=known.put(device.name, device))
