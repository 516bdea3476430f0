"""The state of a rollout, and what a rollout offers: models, or releases of the client."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from edge_server.releases.rollout.target import Report, Target, TargetStatus
from edge_server.rounds.fleet import Fleet
from schemas import topics, values
from schemas.base import Frozen, Name
from schemas.messages import Birth, BlobRequest, Death, Message, client_update, rollout
from schemas.messages.client_update import ClientOffer, ClientReport, ClientWithdrawal
from schemas.messages.rollout import ModelOffer, ModelReport, ModelWithdrawal
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import BlobRef

# The rules of a rollout: the size of groups, when the next group opens, when the rollout stops.

SIZE_PATTERN = r"^(?:100|[1-9]?[0-9])(?:\.[0-9]+)?%$|^[1-9][0-9]{0,6}$"


class RolloutRules(Frozen):
    """Thresholds like those of Eclipse hawkBit's rollouts, per group, over its devices that are not away.

    - `canary`: the size of the first group, `10%` of the devices or a number of them;
    - `groups`: the number of groups of equal size for the other devices;
    - `success`: the share of a group that must have kept the model before the next group opens;
    - `error`: a larger share of failures in a group stops the rollout (by default 1 - success);
    - `at_once`: devices that fetch the model at the same time;
    - `expect`: devices to wait for before groups are formed, for at least `gather_s`;
    - `away_s`: seconds of silence before switching after which a device is excluded from its group;
    - `only`: only these devices (all, if empty);
    - `where`: only devices whose labels match this selector (all, if empty);
    - `silent_s`: seconds of silence beyond its watch after which a device that has switched has failed.
    """

    canary: Annotated[str, StringConstraints(pattern=SIZE_PATTERN)] = "10%"
    groups: int = Field(default=2, ge=1, le=100)
    success: values.Fraction = 0.95
    error: values.Fraction | None = None
    at_once: int = Field(default=32, ge=1, le=10_000)
    expect: int = Field(default=1, ge=1, le=1_000_000)
    gather_s: values.Seconds = 5.0
    away_s: values.Seconds = 600.0
    silent_s: values.Seconds = 300.0
    only: tuple[Name, ...] = ()
    where: str = ""
    terms: rollout.TrialTerms | client_update.UpdateTerms = rollout.TrialTerms.model_construct()

    def are_for(self, device: str) -> bool:
        return not self.only or device in self.only

    @property
    def is_partial(self) -> bool:
        """Whether the rollout is for some of the devices, so that its version is not that of all."""
        return bool(self.only or self.where)

    @property
    def most_failures(self) -> float:
        """The share of a group that may fail."""
        return 1 - self.success if self.error is None else self.error

    def patience_s(self, status: TargetStatus) -> float:
        """Seconds after which a device that reports nothing more counts as away or silent."""
        return self.terms.watch_s + self.silent_s if status is TargetStatus.WATCHING else self.away_s

    def canary_of(self, devices: int) -> int:
        """The size of the canary of this many devices: at least one."""
        share = self.canary.endswith("%")
        size = rounded_up(float(self.canary[:-1]) / 100 * devices) if share else int(self.canary)
        return min(devices, max(1, size))


def rounded_up(number: float) -> int:
    """Round up, tolerating floating-point error: 10% of 30 is 3, not 4."""
    return math.ceil(round(number, 9))


def is_size(text: str) -> bool:
    """Whether `text` is a percentage such as 10%, or a number of devices."""
    return re.fullmatch(SIZE_PATTERN, text) is not None


@dataclass(frozen=True)
class Words:
    """How progress is written: what devices do with the version; `command` continues a rollout.

    `fetches` has a place for the tier, `watch` one for the seconds.
    """

    use: str
    uses: str
    fetches: str
    compares: str
    watch: str
    command: str


@dataclass(frozen=True)
class Connected:
    """Event: connected to the broker; chunks have `chunk_bytes`."""

    chunk_bytes: int


@dataclass(frozen=True)
class MessageReceived:
    """Event: a message of a device; its topic has proved the sender."""

    message: Birth | Death | Report | BlobRequest


@dataclass(frozen=True)
class Withdrawn:
    """Event: the user withdraws the version."""

    why: str


@dataclass(frozen=True)
class Tick:
    """Event: time has passed."""


Event = Connected | MessageReceived | Withdrawn | Tick


@dataclass(frozen=True)
class SendMessage:
    """Command: publish a message to a device."""

    device: str
    message: Message


@dataclass(frozen=True)
class SendChunks:
    """Command: send a device chunks of a file of the registry."""

    device: str
    ref: BlobRef
    first: int
    count: int


Command = SendMessage | SendChunks


class RolloutPhase(StrEnum):
    """The phase of a rollout; it is stopping while devices are sent back to their earlier models."""

    GATHERING = "gathering"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"


OVER = frozenset({RolloutPhase.FINISHED, RolloutPhase.STOPPED})


@dataclass(frozen=True)
class TierFile:
    """The file offered to a tier's devices."""

    ref: BlobRef
    manifest: SignedManifest | None = None


@dataclass(frozen=True)
class Rollout:
    """A rollout. `opened` is the number of the last open group, counted from 0.

    `why` says why it is stopping or was stopped. `gather_until` and `stop_until`, in seconds of the server's
    clock, limit the wait for births and for devices to go back. `device_tiers` are the tiers that the
    version's run assigned to its devices.
    """

    id: str
    version: str
    federation: str
    rules: RolloutRules
    files: Mapping[int, TierFile]
    offering: "Offering"
    phase: RolloutPhase = RolloutPhase.GATHERING
    targets: Mapping[str, Target] = field(default_factory=dict)
    opened: int = 0
    why: str = ""
    fleet: Fleet = field(default_factory=Fleet)
    gather_until: float | None = None
    stop_until: float = 0.0
    device_tiers: Mapping[str, int] = field(default_factory=dict)

    @property
    def groups(self) -> int:
        return max((target.group for target in self.targets.values()), default=-1) + 1

    @property
    def over(self) -> bool:
        return self.phase in OVER

    def tier(self, device: str, profile: values.CapabilityProfile) -> int:
        """The tier whose file the device is offered."""
        return self.offering.tier(self, device, profile)

    def group(self, number: int) -> tuple[Target, ...]:
        """The devices of a group, sorted by name."""
        return tuple(target for _, target in sorted(self.targets.items()) if target.group == number)

    def alive(self, device: str) -> bool:
        """Whether the device is connected, according to the broker."""
        known = self.fleet.devices.get(device)
        return known is not None and known.alive

    @property
    def left_with_it(self) -> tuple[str, ...]:
        """The names of the devices that may use the new version, sorted."""
        return tuple(sorted(target.device for target in self.targets.values() if target.may_serve))

    def with_target(self, target: Target) -> "Rollout":
        return replace(self, targets={**self.targets, target.device: target})


class Offering:
    """One kind of rollout: its messages, its topics, its words.

    The machine is the same for all kinds.
    """

    words: Words
    role: topics.Role
    down: topics.Channel
    offers: type[ModelOffer] | type[ClientOffer]
    withdrawals: type[ModelWithdrawal] | type[ClientWithdrawal]
    reports: type[ModelReport] | type[ClientReport]

    def filters(self, federation: str) -> tuple[str, ...]:
        """The subscriptions of the rollout's connection."""
        raise NotImplementedError

    def tier(self, rollout: Rollout, device: str, profile: values.CapabilityProfile) -> int:
        """Which of the rollout's files the device is offered."""
        raise NotImplementedError

    def stated(self, target: Target) -> dict[str, Any]:
        """The fields of an offer that other kinds do not have."""
        raise NotImplementedError

    def offer(self, rollout: Rollout, target: Target) -> Message:
        """The offer to a device."""
        file, named = rollout.files[target.tier], self._named(rollout, target)
        offered: dict[str, Any] = {"blob": file.ref, "manifest": file.manifest, "terms": rollout.rules.terms}
        return self.offers(**named, **offered, **self.stated(target))

    def withdrawal(self, rollout: Rollout, target: Target) -> Message:
        """The withdrawal from a device."""
        return self.withdrawals(**self._named(rollout, target), detail=rollout.why[:500])

    def _named(self, rollout: Rollout, target: Target) -> dict[str, Any]:
        names = {"federation": rollout.federation, "rollout": rollout.id, "version": rollout.version}
        return {**names, "device": target.device}


Step = tuple[Rollout, list[Command]]
