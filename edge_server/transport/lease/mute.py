"""Mute: the broker passes nothing on, so that no server can hold the lease; claims are repeated.

-> Looking    something is heard: `on_message`
"""

from dataclasses import replace

from edge_server.transport.lease import looking
from edge_server.transport.lease.phases import Looking, Mute
from edge_server.transport.lease.received import Received
from edge_server.transport.lease.state import MUTE_S, LeaseState, Step


def on_message(state: LeaseState, received: Received, now: float) -> Step:
    """The broker passes the topic on: it had lost the claim."""
    if received.retained:
        return state, []
    began = Looking(now)
    return looking.on_message(replace(state, phase=began), began, received, now)


def on_tick(state: LeaseState, mute: Mute, now: float) -> Step:
    if now < mute.next_at:
        return state, []
    claim = state.message("claimed", state.log.beat + 1, served=mute.served)
    return replace(state, phase=replace(mute, next_at=now + MUTE_S)), [claim]
