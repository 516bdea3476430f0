"""The devices that the server knows: births, deaths by last will, and which of them are there now."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace

from edge_server.rounds import newcomers as fresh
from edge_server.rounds.newcomers import Newcomers
from edge_server.rounds.persistent_map import PersistentMap
from schemas.messages import Birth, Death
from schemas.values import CapabilityProfile, DataCard, Eligibility

MAX_DEVICES = 50_000
"""More are not taken: where nothing says who may speak, anyone may make up names."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its last birth described it; `lost_at` is when its last will came, in seconds.

    One whose `eligibility` is another than to train is not asked to, for the reason in words. A `misfit` has
    classes that the federation does not know; these are the words for it.
    Its certificate is good until `certificate_until` (seconds since 1970), as it says.
    """

    name: str
    session: int
    profile: CapabilityProfile
    data: DataCard
    lost_at: float | None = None
    eligibility: Eligibility = Eligibility.TRAIN
    ineligible_because: str = ""
    misfit: str = ""
    instance: str = ""
    origin: str = ""
    certificate_until: float | None = None

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
    """All devices by name, at most `most`.

    Where there are `newcomers`, a device that was not known is one of them until it has answered; without,
    every birth is believed.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    most: int = field(default_factory=lambda: MAX_DEVICES)
    newcomers: Newcomers | None = None

    def has_room_for(self, device: str) -> bool:
        """Whether the device is known, or one more may be."""
        return device in self.devices or len(self.devices) < self.most

    def doubts(self, device: str) -> bool:
        """Whether the device has to answer before it is believed to be there."""
        return self.newcomers is not None and device not in self.devices

    def without_lost(self, busy: Container[str]) -> Fleet:
        """With room for one more, at the cost of those that were lost long ago and are not `busy`."""
        lost = [one for one in self.devices.values() if one.lost_at is not None and one.name not in busy]
        lost.sort(key=lambda one: one.lost_at or 0.0)
        # Several at once: to go through all of them takes a while.
        gone = {one.name for one in lost[: max(1, self.most // 100)]}
        left = {name: one for name, one in self.devices.items() if name not in gone}
        return replace(self, devices=PersistentMap(left))

    def present(self) -> Iterator[str]:
        """The names of the devices that are connected, in no order."""
        return (name for name, device in self.devices.items() if device.alive)

    def alive(self) -> tuple[Device, ...]:
        """The devices that are connected, by name."""
        return tuple(device for _, device in sorted(self.devices.items()) if device.alive)

    def fitting(self) -> tuple[Device, ...]:
        """The devices that are connected and know no other classes than the federation, by name."""
        return tuple(device for device in self.alive() if not device.misfit)

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
            instance=birth.instance,
            origin=birth.origin,
            certificate_until=birth.certificate_until,
        )
        return self._with(device)

    def renumbered(self, device: str, session: int) -> Fleet:
        """The device's next birth may have this number, or a higher one."""
        known = self.devices[device]
        return self if known.session <= session else self._with(replace(known, session=session))

    def died(self, death: Death, now: float) -> Fleet:
        """Take a last will; one of an older session cannot end a newer one."""
        if self.newcomers is not None and death.device in self.newcomers.waiting:
            return replace(self, newcomers=fresh.remove_dead(self.newcomers, death))
        known = self.devices.get(death.device)
        if known is None or not known.alive or death.session < known.session:
            return self
        return self._with(replace(known, lost_at=now))

    def with_misfit(self, name: str, why: str) -> Fleet:
        """What keeps a device that is known from taking part; nothing where `why` is empty."""
        return self._with(replace(self.devices[name], misfit=why))

    def _with(self, device: Device) -> Fleet:
        known = self.devices if isinstance(self.devices, PersistentMap) else PersistentMap(self.devices)
        return replace(self, devices=known.put(device.name, device))
