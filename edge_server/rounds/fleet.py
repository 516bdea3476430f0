"""The devices that the server knows: their births, their last wills, and which are connected."""

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from edge_server.rounds import newcomers as fresh
from edge_server.rounds.newcomers import Newcomers
from schemas import capabilities, messages
from schemas.base import fields_of, site_of
from schemas.selectors import EVERY, Where, selectable
from schemas.values import CapabilityProfile, DataCard, Eligibility

GIB = 1024**3
MEMORY_STEPS = (1 * GIB, 2 * GIB, 4 * GIB, 8 * GIB)
"""Upper bounds of tiers 1 to 4 of five; a Pi Zero 2 (below 1 GiB) is in tier 1."""


def tier_of(profile: CapabilityProfile, tiers: int, *, given: int | None = None) -> int:
    """The tier that the device states, else the tier `given` by evidence, else the tier of its memory.

    In 1..`tiers`, 1 the weakest; 1 if nothing is known of the device.
    """
    if profile.tier is not None:
        return min(profile.tier, tiers)
    if given is not None:
        return min(given, tiers)
    card = profile.card
    memory = profile.memory_bytes if card is None else card.memory_bytes
    if memory == 0:
        return 1
    steps = sum(memory >= step for step in MEMORY_STEPS)
    return 1 + round(steps * (tiers - 1) / len(MEMORY_STEPS))


OwnLabels = Mapping[str, Mapping[str, str]]  # The labels that the operator has set, by device


@dataclass(frozen=True)
class Membership:
    """The devices that `where` chooses; the operator's labels win over those that a device states."""

    where: Where = EVERY
    federation: str = ""
    sites: tuple[str, ...] = ()
    own_labels: OwnLabels = field(default_factory=dict)

    def labels(self, device: str, stated: Mapping[str, str]) -> dict[str, str]:
        return {**stated, **self.own_labels.get(device, {})}

    def selectable(self, device: str, labels: Mapping[str, str]) -> dict[str, str]:
        """The labels that a selector sees, of a device with these."""
        site = site_of(device, self.sites)
        return selectable(labels, device=device, federation=self.federation, site=site)

    def admits(self, device: str, stated: Mapping[str, str]) -> bool:
        if not self.where.requirements:
            return True
        return self.where.matches(self.selectable(device, self.labels(device, stated)))

    def __str__(self) -> str:
        return f"where = '{self.where}'"


MAX_DEVICES = 50_000  # Limit of known devices: without access control anyone can invent names
PLAN_AFTER_S = 10.0  # Seconds for which a planning waits for doubted devices, which may be about to reconnect


@dataclass(frozen=True, slots=True)
class Doubt:
    """That a device is connected: `since` is in seconds, and it was `asked` so often."""

    since: float
    asked: int = 0


@dataclass(frozen=True, slots=True)
class Device:
    """A device as its last birth described it; `lost_at` is when its last will came, in seconds.

    `eligibility` says whether its owner lets it train, `ineligible_because` why not. A nonempty `misfit` says
    why its data does not fit the federation's columns or classes. By its own statement its certificate is
    valid until `certificate_until` (seconds since 1970). `labels` are the operator's and those of its birth
    (`stated_labels`); by them it is `outside` if the run is for other devices. `can` is what its version
    can do. A `doubted` one is connected according to the broker alone. It has answered no offer until the
    last `unanswered` deadlines.
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
    stated_labels: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    outside: bool = False
    can: frozenset[capabilities.Capability] = frozenset()
    doubted: Doubt | None = None
    unanswered: int = 0

    @property
    def able(self) -> bool:
        """Whether the device is there for certain, its owner lets it train, and the run is for it."""
        return (
            self.alive and self.doubted is None and self.eligibility is Eligibility.TRAIN and not self.outside
        )

    @property
    def alive(self) -> bool:
        """Whether the device is connected, according to the broker."""
        return self.lost_at is None


@dataclass(frozen=True)
class Fleet:
    """All devices by name, at most `most`.

    With `newcomers` an unknown device is one of them until it has answered; without, every birth is believed.
    The run is for the devices of `membership`. `doubts` of them are doubted, the last since `doubted_at`.
    """

    devices: Mapping[str, Device] = field(default_factory=dict)
    most: int = field(default_factory=lambda: MAX_DEVICES)
    newcomers: Newcomers | None = None
    membership: Membership = field(default_factory=Membership)
    doubts: int = 0
    doubted_at: float = -math.inf

    def settles(self, now: float) -> bool:
        """Whether devices that are doubted may still answer soon."""
        return self.doubts > 0 and now < self.doubted_at + PLAN_AFTER_S

    def has_room_for(self, device: str) -> bool:
        """Whether the device is known, or there is room for one more."""
        return device in self.devices or len(self.devices) < self.most

    def is_newcomer(self, device: str) -> bool:
        """Whether the device must answer a question before its birth is believed."""
        return self.newcomers is not None and device not in self.devices

    def questions(self, device: str) -> bool:
        """Whether the device must answer a question."""
        return self.is_newcomer(device) or (
            device in self.devices and self.devices[device].doubted is not None
        )

    def without_lost(self, busy: Container[str]) -> "Fleet":
        """Make room by forgetting the devices that were lost first and are not `busy`."""
        known = self.devices.values()
        lost = [device for device in known if device.lost_at is not None and device.name not in busy]
        lost.sort(key=lambda device: device.lost_at or 0.0)
        # Several at once, because going through all devices is slow.
        gone = {device.name for device in lost[: max(1, self.most // 100)]}
        left = {name: device for name, device in self.devices.items() if name not in gone}
        return replace(self, devices=PersistentMap(left))

    def present(self) -> Iterator[str]:
        """The names of the connected devices, unsorted."""
        return (name for name, device in self.devices.items() if device.alive)

    def alive(self) -> tuple[Device, ...]:
        """The connected devices, sorted by name."""
        return tuple(device for _, device in sorted(self.devices.items()) if device.alive)

    def fitting(self) -> tuple[Device, ...]:
        """The connected devices that the run is for and whose data fits it, sorted by name."""
        return tuple(device for device in self.alive() if not device.misfit and not device.outside)

    def able(self) -> tuple[Device, ...]:
        """The devices that may be asked to train, sorted by name."""
        return tuple(device for _, device in sorted(self.devices.items()) if device.able)

    def born(self, birth: messages.Birth) -> "Fleet":
        """Take a birth, unless it is of an older session than the known one."""
        known = self.devices.get(birth.device)
        if known is not None and birth.session < known.session:
            return self
        device = Device(
            birth.device,
            **fields_of(birth, "session", "profile", "data", "eligibility", "ineligible_because"),
            **fields_of(birth, "instance", "origin", "certificate_until"),
            stated_labels=birth.labels,
            labels=self.membership.labels(birth.device, birth.labels),
            outside=not self.membership.admits(birth.device, birth.labels),
            can=birth.capabilities,
        )
        return self._with(device)

    def with_session(self, device: str, session: int) -> "Fleet":
        """Let the device's next birth have this session number, or a higher one."""
        known = self.devices[device]
        return self if known.session <= session else self._with(replace(known, session=session))

    def with_death(self, death: messages.Death, now: float) -> "Fleet":
        """Take a last will, unless it is of an older session than the known one."""
        if self.newcomers is not None and death.device in self.newcomers.waiting:
            return replace(self, newcomers=fresh.remove_dead(self.newcomers, death))
        known = self.devices.get(death.device)
        if known is None or not known.alive or death.session < known.session:
            return self
        return self._with(replace(known, lost_at=now, doubted=None))

    def with_trained_devices(self, updates: Mapping[str, messages.Update]) -> "Fleet":
        """These devices have trained: none of their data is new until they say so, and alarms stand where an
        update says so.
        """
        fleet = self
        for name, update in updates.items():
            device = self.devices.get(name)
            if device is not None and (device.data.new or device.data.drift):
                known = device.data.model_copy(update={"new": 0, "drift": update.drift})
                fleet = fleet._with(replace(device, data=known))
        return fleet

    def with_membership(self, membership: Membership) -> "Fleet":
        fleet = replace(self, membership=membership)
        for device in self.devices.values():
            labels = membership.labels(device.name, device.stated_labels)
            outside = not membership.admits(device.name, device.stated_labels)
            if (labels, outside) != (device.labels, device.outside):
                fleet = fleet._with(replace(device, labels=labels, outside=outside))
        return fleet

    def with_misfit(self, name: str, why: str) -> "Fleet":
        """Record why a known device's data does not fit; an empty `why` clears it."""
        return self._with(replace(self.devices[name], misfit=why))

    def doubt(self, device: str, since: float) -> "Fleet":
        """Doubt that a known device is connected, unless it is doubted already."""
        known = self.devices[device]
        doubted = self if known.doubted else self._with(replace(known, doubted=Doubt(since)))
        return replace(doubted, doubted_at=since)

    def with_question(self, device: Device) -> "Fleet":
        assert device.doubted is not None
        doubt = replace(device.doubted, asked=device.doubted.asked + 1)
        return self._with(replace(device, doubted=doubt))

    def with_contact(self, device: str) -> "Fleet":
        known = self.devices.get(device)
        if known is None or (known.doubted is None and not known.unanswered):
            return self
        return self._with(replace(known, doubted=None, unanswered=0))

    def unheard(self, device: str) -> "Fleet":
        known = self.devices[device]
        return self._with(replace(known, unanswered=known.unanswered + 1))

    def _with(self, device: Device) -> "Fleet":
        known = self.devices if isinstance(self.devices, PersistentMap) else PersistentMap(self.devices)
        before = known.get(device.name)
        was_doubted = before is not None and before.doubted is not None
        doubts = self.doubts + (device.doubted is not None) - was_doubted
        return replace(self, devices=known.with_value(device.name, device), doubts=doubts)


Value = TypeVar("Value")

FEW = 64  # Changes that are always kept apart


class PersistentMap(Mapping[str, Value], Generic[Value]):
    """A frozen mapping; `with_value` returns the next one, which shares all but the latest changes.

    Changes are kept apart until their number exceeds the square root of the rest: N births then cost
    N^1.5, where a copy each would cost N^2, which is minutes for 100,000 devices.
    """

    def __init__(self, settled: Mapping[str, Value], recent: Mapping[str, Value] | None = None) -> None:
        self._settled, self._recent = settled, recent or {}
        self._count = len(settled) + sum(name not in settled for name in self._recent)

    def with_value(self, name: str, value: Value) -> "PersistentMap[Value]":
        """The mapping with a new entry at the end, or another value in the entry's old place."""
        recent = {**self._recent, name: value}
        if len(recent) <= max(FEW, math.isqrt(len(self._settled))):
            return PersistentMap(self._settled, recent)
        return PersistentMap({**self._settled, **recent})

    def __getitem__(self, name: str) -> Value:
        return self._recent[name] if name in self._recent else self._settled[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._settled
        yield from (name for name in self._recent if name not in self._settled)

    def __len__(self) -> int:
        return self._count
