"""Reading back the message that the broker retains: a server may have missed it."""

from dataclasses import replace

from edge_server.transport.lease.state import LOOK_S, RENEW_S, LeaseState, ReadBack, Reading, Step


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
    """There is no reason left to read back."""
    return state if state.reading is None else replace(state, reading=None)
