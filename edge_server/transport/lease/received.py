"""What a message on the topic means to a server, whatever its phase."""

from dataclasses import dataclass, replace

from edge_server.transport.lease.phases import ClaimStep, Held
from edge_server.transport.lease.state import LOOK_S, RENEW_S, Heard, LeaseState, ReadBack, Reading, Step
from schemas.messages import Lease


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


# Reading back the message that the broker retains: a server may have missed it.


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
