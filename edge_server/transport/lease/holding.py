"""Held: the server renews the lease, and holds it as long as its renewals come back.

-> Lost       another server has the lease, or has had it since: `_lose`
"""

from dataclasses import replace

from edge_server.transport.lease.phases import Confirming, Held, Lost
from edge_server.transport.lease.state import HOLD_S, RENEW_S, LeaseState, Received, Step, goes_before
from schemas.messages import Lease


def on_message(state: LeaseState, held: Held, received: Received, now: float) -> Step:
    """A renewal that comes back prolongs the lease; anything else is answered with one, or ends it."""
    lease, counts = received.lease, received.counts and not received.retained
    if received.own and counts and lease.state == "lost":
        # The server's own connection has broken, this one has not.
        return renew(state, held, now)
    if received.own:
        confirmed = counts and lease.state == "held" and lease.beat in held.sent
        return replace(state, phase=prolong(held, lease.beat)) if confirmed else state, []
    if goes_before(state, lease, counts=counts):
        return _lose(state, lease), []
    # Whoever connects now must find the holder's own message.
    return renew(state, held, now)


def on_tick(state: LeaseState, held: Held, now: float) -> Step:
    return renew(state, held, now) if now >= held.next_at else (state, [])


def renew(state: LeaseState, phase: Confirming | Held, now: float) -> Step:
    beat = state.log.beat + 1
    renewed = replace(phase, sent={beat: now, **phase.sent}, next_at=now + RENEW_S)
    return replace(state, phase=renewed), [state.message("held", beat)]


def prolong(held: Held, beat: int) -> Held:
    """The renewal `beat` has come back: the server holds the lease for `HOLD_S` since it was sent."""
    later = {other: at for other, at in held.sent.items() if other > beat}
    return replace(held, sent=later, held_until=max(held.held_until, held.sent[beat] + HOLD_S))


def _lose(state: LeaseState, lease: Lease) -> LeaseState:
    return replace(state, phase=Lost(lease))
