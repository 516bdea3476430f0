"""The state of a rollout: its rules, the files, its devices, which groups are open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from edge_server.releases.rollout.events import Command
from edge_server.releases.rollout.rules import RolloutRules
from edge_server.releases.rollout.target import Target
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.tiers import tier_of
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import BlobRef
from schemas.values import CapabilityProfile


class RolloutPhase(StrEnum):
    """Where the rollout is. It is stopping while devices are told to go back."""

    GATHERING = "gathering"
    RUNNING = "running"
    STOPPING = "stopping"
    FINISHED = "finished"
    STOPPED = "stopped"


OVER = frozenset({RolloutPhase.FINISHED, RolloutPhase.STOPPED})


@dataclass(frozen=True)
class TierFile:
    """What a tier's devices are offered."""

    ref: BlobRef
    manifest: SignedManifest | None = None


@dataclass(frozen=True)
class Rollout:
    """All of it. `opened` is the number of the last group that is under way, counted from 0.

    `why` says why it is stopping or was stopped; `gather_until` and `stop_until` are seconds of the server's
    clock: how long births are waited for, and how long it is waited for devices to go back.
    `device_tiers` are those that the version's run gave to its devices.
    """

    id: str
    version: str
    federation: str
    rules: RolloutRules
    files: Mapping[int, TierFile]
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
        """How many there are."""
        return max((target.group for target in self.targets.values()), default=-1) + 1

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self.phase in OVER

    def tier(self, device: str, profile: CapabilityProfile) -> int:
        """The tier whose file the device is offered: stated, or else given in the run, or else by memory."""
        return tier_of(profile, max(self.files), given=self.device_tiers.get(device))

    def group(self, number: int) -> tuple[Target, ...]:
        """The devices of a group, by name."""
        return tuple(one for _, one in sorted(self.targets.items()) if one.group == number)

    def alive(self, device: str) -> bool:
        """Whether the device is connected, as far as the broker has told."""
        known = self.fleet.devices.get(device)
        return known is not None and known.alive

    @property
    def left_with_it(self) -> tuple[str, ...]:
        """The devices that may serve the new model, by name."""
        return tuple(sorted(one.device for one in self.targets.values() if one.may_serve))

    def put(self, target: Target) -> Rollout:
        """With this one's next state."""
        return replace(self, targets={**self.targets, target.device: target})


Step = tuple[Rollout, list[Command]]
