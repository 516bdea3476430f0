"""A rollout without a broker: devices send births and reports, and receive the machine's commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from edge_server.releases.rollout import state
from edge_server.releases.rollout.groups import MODELS
from edge_server.releases.rollout.machine import step
from edge_server.releases.rollout.target import TargetStatus
from schemas.messages import Birth, Death, Message, ModelReport
from schemas.messages.rollout import Cause, Stage, TrialTerms
from schemas.tensors.chunks import CHUNK_BYTES, BlobRef, digest_of
from schemas.values import CapabilityProfile, DataCard
from tests.edge_server.releases.rollout.measured import measured

FEDERATION, VERSION = "home", "v2"
TERMS = TrialTerms(watch_s=30.0)
RULES = state.RolloutRules(canary="1", groups=2, gather_s=5.0, away_s=100.0, silent_s=50.0, terms=TERMS)
FILES = {
    tier: state.TierFile(BlobRef(digest=digest_of(f"tier {tier}".encode()), size=300_000)) for tier in (1, 2)
}
CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)
DONE = measured(0.9)


def birth(device: str, *, tier: int | None = 1, session: int = 1) -> Birth:
    profile = CapabilityProfile(tier=tier)
    return Birth(federation=FEDERATION, device=device, session=session, profile=profile, data=CARD)


@dataclass
class World:
    """The rollout machine, its clock and the sent messages."""

    rules: state.RolloutRules = RULES
    now: float = 1000.0
    sent: list[tuple[str, Message]] = field(default_factory=list)
    chunks: list[state.SendChunks] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rollout = state.Rollout("r-1", VERSION, FEDERATION, self.rules, FILES, MODELS)

    def do(self, event: state.Event) -> list[tuple[str, Message]]:
        self.rollout, commands = step(self.rollout, event, self.now)
        new = []
        for command in commands:
            if isinstance(command, state.SendChunks):
                self.chunks.append(command)
            else:
                new.append((command.device, command.message))
        self.sent += new
        return new

    def wait(self, seconds: float) -> list[tuple[str, Message]]:
        self.now += seconds
        return self.do(state.Tick())

    def begin(self, *devices: str, tiers: dict[str, int] | None = None) -> World:
        """Connect, send births of these devices and form the groups."""
        self.do(state.Connected(CHUNK_BYTES))
        for device in devices:
            self.do(state.MessageReceived(birth(device, tier=(tiers or {}).get(device, 1))))
        self.wait(self.rules.gather_s)
        return self

    def say(
        self, device: str, stage: Stage, cause: Cause | None = None, **more: Any
    ) -> list[tuple[str, Message]]:
        measured = {"candidate": DONE, "running": DONE} if stage is not Stage.OFFERED else {}
        report = ModelReport(
            federation=FEDERATION,
            device=device,
            rollout="r-1",
            version=VERSION,
            stage=stage,
            cause=cause,
            **{**measured, **more},
        )
        return self.do(state.MessageReceived(report))

    def lost(self, device: str) -> None:
        """Deliver the device's last will."""
        self.do(state.MessageReceived(Death(federation=FEDERATION, device=device, session=1)))

    def status(self, device: str) -> TargetStatus:
        return self.rollout.targets[device].status

    def group(self, number: int) -> list[str]:
        return [target.device for target in self.rollout.group(number)]

    def offered(self) -> set[str]:
        return {device for device, message in self.sent if message.kind == "model-offer"}

    def withdrawn(self) -> set[str]:
        return {device for device, message in self.sent if message.kind == "model-withdrawal"}
