"""What a server knows of its federation's lease, and what may happen to it."""

from dataclasses import dataclass, field, replace
from typing import Literal

from edge_server.transport.lease.phases import ClaimStep, Held, LeaseLog, Looking, Phase
from schemas.messages import Lease, LeaseHolder

RENEW_S, HOLD_S, SILENCE_S = 1.0, 4.0, 6.0
LOOK_S = 0.2  # Seconds after a subscription in which the broker sends the retained message, if it has one
FORGOTTEN_S = 4.0  # Seconds in which the holder connects again and is heard, if the broker has forgotten it
GRACE_S = 4.5
"""Seconds after a last will in which its holder may come back: longer than it holds without a renewal."""
SETTLE_S = 0.4
"""Seconds for which a claim waits for contradiction, unless the holder has given the lease back."""
MUTE_S = 5.0  # Seconds in which a broker passes a claim back, unless its rules forbid the topic


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
class Reading:
    """The broker was asked for the message that it retains.

    It is asked again at `until`, unless it has `answered`: then the answer is complete at `until`.
    """

    until: float
    answered: bool = False


@dataclass(frozen=True)
class LeaseState:
    """What a server knows of its federation's lease in every phase.

    A server that `follows` claims only where the last message names it as the standby, or comes from its own
    folder. `first_epoch` is the lowest epoch that a claim may have; in a copy, the last one that was served.
    It `had_standby` if one may have taken over since it ended.
    `reading` is None unless the broker was asked for the message that it retains. `cut_off`: the connection
    has ended after a claim, and nobody else was heard since. `synced` is the standby that the holder names.
    """

    me: LeaseHolder
    federation: str
    run: str | None = None
    follows: bool = False
    first_epoch: int = 1
    had_standby: bool = False
    connected: bool = False
    log: LeaseLog = field(default_factory=LeaseLog)
    reading: Reading | None = None
    cut_off: bool = False
    epoch: int = 0
    synced: str = ""
    phase: Phase = field(default_factory=Looking)

    def holds(self, now: float) -> bool:
        """Whether this server may write and send."""
        return isinstance(self.phase, Held) and now < self.phase.held_until

    @property
    def may_follow(self) -> bool:
        """Whether the holder has named this server as its standby."""
        return self.log.last is not None and self.log.last.standby == self.me.instance

    def is_own(self, lease: Lease | None) -> bool:
        return lease is not None and lease.holder.instance == self.me.instance

    def message(
        self,
        state: Literal["claimed", "held", "lost", "free", "over"],
        beat: int,
        *,
        served: int | None = None,
    ) -> Lease:
        return Lease(
            federation=self.federation,
            state=state,
            epoch=max(self.epoch, 1),
            beat=beat,
            holder=self.me,
            run=self.run,
            standby=self.synced,
            served=served,
        )


# What a message on the topic means to a server, whatever its phase.
@dataclass(frozen=True)
class Received:
    """A message: whether it is the server's `own`, whether it `counts`, whether the broker `retained` it.

    `repeated`: the same message was the last one that counted.
    """

    lease: Lease
    own: bool
    counts: bool
    retained: bool
    repeated: bool = False

    def is_own(self, state: str) -> bool:
        """Whether this is a message of the server itself in this state."""
        return self.own and self.lease.state == state


def receive(state: LeaseState, heard: Heard, now: float) -> tuple[LeaseState, Received]:
    """Take a message that counts into the log."""
    lease, retained = heard.lease, heard.retained
    own = state.is_own(lease)
    # Devices obey the newest epoch: its holder does not yield to an older one.
    older = isinstance(state.phase, Held) and lease.epoch < state.epoch
    counts = state.log.counts(lease, retained=retained) and not older
    log = state.log
    if counts and not (retained and _is_mere_answer(state, lease)):
        log = log.hear(lease, now, retained=retained)
    received = Received(lease, own, counts, retained, _is_last(state, lease))
    return replace(state, log=log, cut_off=state.cut_off and own), received


def goes_before(state: LeaseState, lease: Lease, *, counts: bool) -> bool:
    """Whether another has the lease, or has had it since, by this message.

    It counts; or, where the broker has forgotten what was before or this server was cut off, its epoch is
    newer, or it came first.
    """
    if lease.state == "claimed":
        return counts
    if lease.state == "held":
        return counts or (lease.epoch, -lease.holder.since) > (state.epoch, -state.me.since)
    return lease.epoch > state.epoch


def _is_mere_answer(state: LeaseState, lease: Lease) -> bool:
    """Whether a retained message only answers a `ReadBack`: it is no later one. During a claim none is."""
    if state.reading is None or isinstance(state.phase, ClaimStep):
        return state.reading is not None
    return _is_last(state, lease)


def _is_last(state: LeaseState, lease: Lease) -> bool:
    last = state.log.last
    return last is not None and _identity(last) == _identity(lease)


def _identity(lease: Lease) -> tuple[str, str, int]:
    return lease.holder.instance, lease.state, lease.beat


def read_back(state: LeaseState, now: float) -> Step:
    """Ask the broker for the message that it retains, and again if no answer comes."""
    if state.reading is not None and now < state.reading.until:
        return state, []
    return replace(state, reading=Reading(now + RENEW_S)), [ReadBack()]


def has_read(state: LeaseState, now: float) -> bool:
    """Whether the broker's answer is known."""
    return state.reading is not None and state.reading.answered and now >= state.reading.until


def take_answer(state: LeaseState, now: float) -> LeaseState:
    """A retained message answers, if the broker was asked."""
    return state if state.reading is None else replace(state, reading=Reading(now, answered=True))


def expect_answer(state: LeaseState, now: float) -> LeaseState:
    """The broker has taken the question: within `LOOK_S` it sends what it retains, or retains nothing."""
    if state.reading is None or state.reading.answered:
        return state
    return replace(state, reading=Reading(now + LOOK_S, answered=True))


def stop_reading(state: LeaseState) -> LeaseState:
    return state if state.reading is None else replace(state, reading=None)
