"""What a server knows of its federation's lease, and what may happen to it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from edge_server.transport.lease.log import NEVER, LeaseLog
from schemas.messages import Lease, LeaseHolder

RENEW_S, HOLD_S, SILENCE_S = 1.0, 4.0, 6.0
LOOK_S = 0.2
"""Seconds after a subscription in which the broker sends the retained message, if it has one."""
FORGOTTEN_S = 4.0
"""Seconds in which the holder connects again and is heard, if the broker has forgotten it."""
GRACE_S = 4.5
"""Seconds after a last will in which its holder may come back: longer than it holds without a renewal."""
SETTLE_S = 0.4
"""Seconds for which a claim waits for contradiction, unless the holder has given the lease back."""
NOT_YET = float("inf")
MUTE_S = 5.0
"""Seconds in which a broker passes a claim back, unless its rules forbid the topic."""


class LeasePhase(StrEnum):
    LOOKING = "looking"
    CLAIMING = "claiming"
    HELD = "held"
    TAKEN = "taken"
    LOST = "lost"
    MUTE = "mute"


@dataclass(frozen=True)
class Connected:
    """The topic is subscribed to, after a connection was made or once more."""


@dataclass(frozen=True)
class Disconnected:
    """The connection has ended."""


@dataclass(frozen=True)
class Heard:
    """A message on the topic."""

    lease: Lease
    retained: bool = False


@dataclass(frozen=True)
class Tick:
    """The time. `alive` says whether the holder's process runs on this machine, None if it is elsewhere."""

    alive: bool | None = None


@dataclass(frozen=True)
class ReadBack:
    """Command: subscribe once more, so that the broker sends the message that it retains."""


Event = Connected | Disconnected | Heard | Tick
Step = tuple["LeaseState", list["Lease | ReadBack"]]
"""The next state, and what to do: publish messages, or read back."""


@dataclass(frozen=True)
class LeaseState:
    """What a server knows of its federation's lease.

    A server that `follows` claims only where the last message names it as the standby. `synced` is the
    standby that the holder names; `first_epoch` the lowest epoch that a claim may have; `by` is the message
    of whoever has taken the lease; `since` is when this server connected, looked again or claimed, in
    seconds; `beats` counts the renewals heard while it looked; `sent` is when each unconfirmed beat was sent;
    `asked`: the broker was asked for the message that it retains; a claim may follow at `stands_at`;
    `cut_off`: its connection has ended after a claim, and nobody else was heard since; `served` is the newest
    epoch before its claim in which a server held the lease.
    It `had_standby` if one may have taken over since it ended.
    It is `behind` if the run went on elsewhere after `first_epoch`, the last one in this server's journal.
    """

    me: LeaseHolder
    federation: str
    run: str | None = None
    follows: bool = False
    phase: LeasePhase = LeasePhase.LOOKING
    log: LeaseLog = field(default_factory=LeaseLog)
    epoch: int = 0
    first_epoch: int = 1
    synced: str = ""
    connected: bool = False
    since: float = NEVER
    beats: int = 0
    sent: Mapping[int, float] = field(default_factory=dict)
    settle_s: float = 0.0
    settled_at: float = NOT_YET
    asked: bool = False
    stands_at: float = NOT_YET
    held_until: float = NEVER
    next_at: float = NEVER
    by: Lease | None = None
    behind: bool = False
    cut_off: bool = False
    served: int | None = None
    had_standby: bool = False

    def holds(self, now: float) -> bool:
        """Whether this server may write and send."""
        return self.phase is LeasePhase.HELD and now < self.held_until

    @property
    def may_follow(self) -> bool:
        """Whether the holder has named this server as its standby."""
        return self.log.last is not None and self.log.last.standby == self.me.instance

    def message(self, state: Literal["claimed", "held", "lost", "free", "over"], beat: int) -> Lease:
        """A message of this server."""
        return Lease(
            federation=self.federation,
            state=state,
            epoch=max(self.epoch, 1),
            beat=beat,
            holder=self.me,
            run=self.run,
            standby=self.synced,
            served=self.served if state == "claimed" else None,
        )
