"""A device speaks of itself: that it is there, that it is gone, where it is in its work."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.messages.message import Message
from schemas.names import Name
from schemas.values import (
    BoardState,
    CapabilityProfile,
    Count,
    DataCard,
    Eligibility,
    Instance,
    Loss,
    RoundNumber,
    Text,
    UnixSeconds,
)


class Birth(Message):
    """Retained: the device is there. A higher `session` replaces a lower one.

    It is said again within a session where `eligibility` changes, with the reason in words. `instance` names
    the process that says it, and `origin` its machine in words: two devices with one name are told by them.
    Its certificate, if it has one, is good until `certificate_until` (seconds since 1970).
    """

    kind: Literal["birth"] = "birth"
    device: Name
    session: int = Field(ge=0)
    profile: CapabilityProfile = CapabilityProfile.model_construct()
    data: DataCard
    eligibility: Eligibility = Eligibility.TRAIN
    ineligible_because: Text = ""
    instance: Instance = ""
    origin: Text = ""
    certificate_until: UnixSeconds | None = None


class Death(Message):
    """Last will, retained over the birth: the device of that `session` is gone."""

    kind: Literal["death"] = "death"
    device: Name
    session: int = Field(ge=0)


class Telemetry(Message):
    """Where a device is in its work, and how its board is; lost ones are not missed."""

    kind: Literal["telemetry"] = "telemetry"
    device: Name
    session: int = Field(ge=0)
    phase: Literal["idle", "fetching", "training", "uploading", "exporting"]
    round: RoundNumber | None = None
    epoch: Count | None = None
    epochs: Count | None = None
    loss: Loss | None = None
    board: BoardState | None = None
