"""From a server: the round and the end, retained for all devices; its lease and its standby's copy."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from schemas.base import Frozen, Name
from schemas.messages.message import Message, ServedMessage
from schemas.tensors.chunks import BlobRef
from schemas.values import Epoch, Instance, RoundNumber, Text, UnixSeconds

Beat = Annotated[int, Field(ge=0, le=10**15)]


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


class LeaseHolder(Frozen):
    """A server's process. `host` is the machine's name; `machine` identifies its boot and process namespace.

    `ticks` is the process's start, in clock ticks since the boot: a process id may be used again.
    """

    instance: Instance
    host: Text
    machine: Text = ""
    pid: int = Field(ge=0)
    ticks: int = Field(default=0, ge=0)
    folder: Text = ""
    since: UnixSeconds

    def is_of(self, other: "LeaseHolder") -> bool:
        """Whether both serve the same run folder of the same machine."""
        return bool(self.folder) and (self.host, self.folder) == (other.host, other.folder)


class Lease(Message):
    """Who holds the federation, or wants to.

    `beat` is that of the message before it plus one: of two messages that follow the same one, only the
    first that the broker passes on counts. `lost` is the last will of the holder's connection and has a beat
    drawn at random. `free` and `over` end a lease, the latter with its run. `standby` is the instance that
    may follow: it has everything that the holder has. `served` is the newest epoch before a claim in which a
    server held the lease.
    """

    kind: Literal["lease"] = "lease"
    state: Literal["claimed", "held", "lost", "free", "over"]
    epoch: Epoch
    beat: Beat
    holder: LeaseHolder
    run: Name | None = None
    standby: Instance = ""
    served: Annotated[Epoch | None, Field(exclude_if=lambda epoch: epoch is None)] = None

    @property
    def newest_served(self) -> int:
        """The newest epoch in which a server may have served."""
        return self.epoch if self.state != "claimed" or self.served is None else self.served


class StandbyReport(Message):
    """From a standby, every second and after each entry: it has taken all entries up to `confirmed`.

    It has heard of those up to `known`. `series` is that of the entries; empty until it has heard of one.
    """

    kind: Literal["standby-report"] = "standby-report"
    standby: Instance
    series: Instance = ""
    known: int = Field(default=0, ge=0)
    confirmed: int = Field(default=0, ge=0)
    origin: Text = ""


class StandbyEntry(Message):
    """To a standby: the next change of the run folder, as a blob; entry 1 of a series is the whole folder."""

    kind: Literal["standby-entry"] = "standby-entry"
    standby: Instance
    series: Instance
    number: int = Field(ge=1)
    entry: BlobRef


class StandbyRefusal(Message):
    """To a standby: this run cannot be followed, and why."""

    kind: Literal["standby-refusal"] = "standby-refusal"
    standby: Instance
    detail: Text
