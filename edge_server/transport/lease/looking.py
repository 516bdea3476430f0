"""Looking: the server listens for a holder, and claims the lease once nobody has it.

    -> Claiming   nobody has the lease: `_claim`
    -> Taken      its holder lives: `_give_way`; or the run went on in another folder: `_stay_behind`

What the broker retains is read before a claim, unless the holder has given the lease back or is known dead.
"""

from dataclasses import replace
from typing import Literal

from edge_server.transport.lease import state as lease
from edge_server.transport.lease.phases import Claim, Claiming, Looking, Taken
from schemas.messages import Lease

Vacancy = Literal["left", "silent"] | None  # Why nobody holds the lease; None if somebody may


def on_message(state: lease.LeaseState, looking: Looking, received: lease.Received, now: float) -> lease.Step:
    """Note the renewals of a living holder."""
    if received.retained:
        return lease.take_answer(state, now), []
    if received.own or received.repeated or received.lease.state != "held":
        return state, []
    # What the broker had retained was older than a renewal that does not count.
    log = state.log if received.counts else state.log.based_on(received.lease, now)
    return replace(state, log=log, phase=replace(looking, lives=True)), []


def on_tick(state: lease.LeaseState, looking: Looking, now: float, alive: bool | None) -> lease.Step:
    """Judge by the last message, once the broker has had the time to send what it retains."""
    last = state.log.last
    if now < looking.since + lease.LOOK_S:
        return state, []
    if last is None:
        return _find_nobody(state, looking, now)
    if state.is_own(last) and (state.cut_off or not state.follows):
        return _claim(state, looking, now)
    vacancy = _vacancy(state, looking, last, now, alive)
    if state.follows:
        return _follow(state, looking, last, vacancy, now)
    if vacancy is None:
        return _wait(state, looking, last, alive), []
    return _compete(state, looking, last, vacancy, now)


def _find_nobody(state: lease.LeaseState, looking: Looking, now: float) -> lease.Step:
    """Claim, unless the broker may have forgotten a holder."""
    forgotten = state.had_standby and now < looking.since + lease.FORGOTTEN_S
    return (state, []) if state.follows or forgotten else _claim(state, looking, now)


def _vacancy(
    state: lease.LeaseState, looking: Looking, last: Lease, now: float, alive: bool | None
) -> Vacancy:
    """Given back or its process gone: "left"; nothing heard for too long: "silent"; held: None."""
    if last.state in ("free", "over") or alive is False:
        return "left"
    patience_s = lease.GRACE_S if state.follows and last.state == "lost" else lease.SILENCE_S
    return "silent" if now >= max(state.log.heard_at, looking.since) + patience_s else None


def _follow(
    state: lease.LeaseState, looking: Looking, last: Lease, vacancy: Vacancy, now: float
) -> lease.Step:
    """Claim as the standby that the holder has named, or as the one that died before it served."""
    may_claim = state.may_follow or _is_unserved(state, last)
    if vacancy is not None and may_claim and last.state != "over":
        return _claim_when_read(state, looking, vacancy, now)
    return lease.stop_reading(state), []


def _is_unserved(state: lease.LeaseState, last: Lease) -> bool:
    """Whether an earlier process of this standby had the lease, and served nothing.

    A standby renews a claim only after it was verified; before it serves, its folder is a copy no more. With
    this message as the last one, nobody else has served since. A claim alone may be an unverified one.
    """
    same_copy = last.holder.is_of(state.me) and state.run is not None and state.run == last.run
    return state.follows and same_copy and last.state != "claimed" and last.epoch > state.first_epoch


def _compete(
    state: lease.LeaseState, looking: Looking, last: Lease, vacancy: Vacancy, now: float
) -> lease.Step:
    """Claim as a server that starts, unless its folder is an old one."""
    if _is_behind(state, last):
        return _stay_behind(state, last), []
    return _claim_when_read(state, looking, vacancy, now)


def _wait(state: lease.LeaseState, looking: Looking, last: Lease, alive: bool | None) -> lease.LeaseState:
    """Give way to a holder that lives: its process runs on this machine, or it was heard from elsewhere."""
    lives = looking.lives if alive is None else alive
    return _give_way(lease.stop_reading(state), last) if lives else lease.stop_reading(state)


def _is_behind(state: lease.LeaseState, last: Lease) -> bool:
    """Whether another folder has a later state of the run."""
    same_run = state.run is not None and state.run == last.run
    return same_run and last.newest_served > state.first_epoch and not last.holder.is_of(state.me)


def _claim_when_read(state: lease.LeaseState, looking: Looking, vacancy: Vacancy, now: float) -> lease.Step:
    if vacancy == "left" or lease.has_read(state, now):
        return _claim(state, looking, now)
    return lease.read_back(state, now)


def _claim(state: lease.LeaseState, looking: Looking, now: float) -> lease.Step:
    last = state.log.last
    left = last is None or (state.log.live and last.state in ("free", "over"))
    served = _newest_served(state)
    claim = Claim(contestable=not left, served=served, lives=looking.lives)
    phase = Claiming(claim, since=now, next_at=now + lease.RENEW_S)
    claiming = replace(lease.stop_reading(state), epoch=_next_epoch(state), synced="", phase=phase)
    return claiming, [claiming.message("claimed", state.log.beat + 1, served=served)]


def _newest_served(state: lease.LeaseState) -> int | None:
    """The newest epoch in which a server may have served; None if there was none."""
    last = state.log.last
    if last is None:
        return None
    return state.first_epoch if _is_unserved(state, last) else last.newest_served


def _next_epoch(state: lease.LeaseState) -> int:
    """A later epoch than the last one, unless that is of the same folder."""
    last = state.log.last
    if last is None:
        return state.first_epoch
    return max(state.first_epoch, last.epoch + (0 if last.holder.is_of(state.me) else 1))


def _give_way(state: lease.LeaseState, last: Lease) -> lease.LeaseState:
    return replace(state, phase=Taken(last))


def _stay_behind(state: lease.LeaseState, last: Lease) -> lease.LeaseState:
    return replace(state, phase=Taken(last, behind=True))
