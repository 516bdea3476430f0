"""Obtaining and keeping the lease of a federation, as a pure state machine.

    Looking --> Claiming --> Settling --> Verifying --> Confirming --> Held --> Lost
       |            |            |                          ^
       |            |            +--------------------------+
       v            v
     Taken        Mute --> Looking

The four steps of a claim, Claiming to Confirming, also lead back to Looking: if another server goes before,
or the connection ends. Taken and Lost are final.

Each phase is a value of `phases`; each arrow is a function that `looking`, `claiming` (all steps of a claim),
`holding` and `mute` list in their docstrings.

A claim that counts is followed by renewals every `RENEW_S`; with the first one that it hears back a server
holds the lease, so everyone else knows that it may have served. Each renewal that it hears back gives it
`HOLD_S` from the moment at which it was sent; without one it must neither write nor send (`holds`). Others
wait for `SILENCE_S`, which is longer, from the moment at which they heard the last one. No clocks are
compared, and clocks need only run alike.

A server that has heard nothing cannot tell a dead holder from messages that the broker has dropped. The
broker retains the last message. It is read before a claim, which follows it, and after the claim: a holder
that lives has contradicted it.

Without a claim that comes back the lease is mute, until something is heard on the topic: the broker's rules
forbid it, or the claim was lost.
"""

from dataclasses import replace

from edge_server.transport.lease import claiming, holding, looking, phases
from edge_server.transport.lease import state as lease
from schemas.messages import Lease

# Mute: the broker passes nothing on, so that no server can hold the lease; claims are repeated.


def on_message(state: lease.LeaseState, received: lease.Received, now: float) -> lease.Step:
    """The broker passes the topic on: it had lost the claim."""
    if received.retained:
        return state, []
    began = phases.Looking(now)
    return looking.on_message(replace(state, phase=began), began, received, now)


def on_tick(state: lease.LeaseState, mute: phases.Mute, now: float) -> lease.Step:
    if now < mute.next_at:
        return state, []
    claim = state.message("claimed", state.log.beat + 1, served=mute.served)
    return replace(state, phase=replace(mute, next_at=now + lease.MUTE_S)), [claim]


def step(state: lease.LeaseState, event: lease.Event, now: float) -> lease.Step:
    match event:
        case lease.Connected() if state.connected:
            return lease.expect_answer(state, now), []
        case lease.Connected():
            return _on_connected(state, now), []
        case lease.Disconnected():
            return _on_disconnected(state, now), []
        case lease.Heard():
            return _on_message(*lease.receive(state, event, now), now)
        case lease.Tick(alive):
            return _on_tick(state, now, alive) if state.connected else (state, [])


def name_standby(state: lease.LeaseState, standby: str, now: float) -> lease.Step:
    """Name the instance that may follow from now on, or none: the holder says so at once."""
    named = replace(state, synced=standby)
    return holding.renew(named, named.phase, now) if isinstance(named.phase, phases.Held) else (named, [])


def give_up(state: lease.LeaseState, *, over: bool) -> Lease:
    """The last message of a holder that ends in order."""
    return state.message("over" if over else "free", state.log.beat + 1)


def _on_message(state: lease.LeaseState, received: lease.Received, now: float) -> lease.Step:
    match state.phase:
        case phases.Looking() as phase:
            return looking.on_message(state, phase, received, now)
        case phases.Held() as phase:
            return holding.on_message(state, phase, received, now)
        case phases.Mute():
            return on_message(state, received, now)
        case phases.Taken() | phases.Lost():
            return state, []
        case phases.Claiming() | phases.Settling() | phases.Verifying() | phases.Confirming() as phase:
            return claiming.on_message(state, phase, received, now)


def _on_tick(state: lease.LeaseState, now: float, alive: bool | None) -> lease.Step:
    match state.phase:
        case phases.Looking() as phase:
            return looking.on_tick(state, phase, now, alive)
        case phases.Held() as phase:
            return holding.on_tick(state, phase, now)
        case phases.Mute() as phase:
            return on_tick(state, phase, now)
        case phases.Taken() | phases.Lost():
            return state, []
        case phases.Claiming() | phases.Settling() | phases.Verifying() | phases.Confirming() as phase:
            return claiming.on_tick(state, phase, now)


def _on_connected(state: lease.LeaseState, now: float) -> lease.LeaseState:
    """The broker sends what it retains first; no claim has outlived the last connection."""
    phase: phases.Phase = state.phase
    match phase:
        case phases.Looking():
            phase = replace(phase, since=now)
        case phases.Held() | phases.Mute():
            phase = replace(phase, next_at=now + lease.LOOK_S)
    return replace(state, connected=True, log=state.log.with_new_connection(), reading=None, phase=phase)


def _on_disconnected(state: lease.LeaseState, now: float) -> lease.LeaseState:
    """Of what was sent nothing comes back any more."""
    cut = replace(state, connected=False)
    match state.phase:
        case phases.Held() as phase:
            return replace(cut, phase=replace(phase, sent={}))
        case phases.Looking() | phases.Mute() | phases.Taken() | phases.Lost():
            return cut
        case phases.Claiming() | phases.Settling() | phases.Verifying() | phases.Confirming() as phase:
            return claiming.cut_off(cut, phase, now)
