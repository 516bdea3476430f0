"""Retained messages from the server to all devices."""

from typing import Literal

from pydantic import Field, model_validator

from schemas.messages.message import ServedMessage
from schemas.names import Name
from schemas.values import RoundNumber


class RoundAnnouncement(ServedMessage):
    """The current round of a run.

    Tasks of rounds before `oldest` are void; by default all but those of `round`.
    """

    kind: Literal["round-announcement"] = "round-announcement"
    run: Name
    round: RoundNumber
    rounds: RoundNumber
    phase: Literal["waiting", "training", "aggregating", "delivering"]
    selected: int = Field(ge=0)
    oldest: RoundNumber = Field(default_factory=lambda announced: announced["round"])

    @model_validator(mode="after")
    def _oldest_has_begun(self) -> "RoundAnnouncement":
        if self.oldest > self.round:
            raise ValueError(f"oldest {self.oldest} is after round {self.round}")
        return self


class FederationEnd(ServedMessage):
    """The run is over; if it `goes_on`, the run for which it has asked for statistics begins."""

    kind: Literal["federation-end"] = "federation-end"
    run: Name
    outcome: Literal["finished", "failed", "interrupted"]
    rounds: RoundNumber
    goes_on: bool = Field(default=False, exclude_if=lambda goes_on: not goes_on)
