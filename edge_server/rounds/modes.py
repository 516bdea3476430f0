"""The two modes of a run: when a round is planned and when it closes.

Synchronous: one planning, then training, then one closing; devices asked beyond those needed
(over-selection: Bonawitz et al. 2019, "Towards Federated Learning at Scale", section 2.2) are released.

Buffered (FedBuff: Nguyen et al. 2022, "Federated Learning with Buffered Asynchronous Aggregation",
algorithm 1): devices are planned as they become free, and a round is one aggregation of `size` updates,
whichever round they began in. Beyond the paper: a device counts at most once per round and then rests until
the next, as does a device whose task was lost; updates that arrive while the server is busy join the next
aggregation; if no device can fill the buffer, `min_clients` updates are enough.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from edge_server.rounds import events, fleet, planning, quarantine, rollback, secure_aggregation
from edge_server.rounds.closing import RETRY_S, abandon, close_round, failures_text, note_round_start
from edge_server.rounds.participant import Status, mark_missed
from edge_server.rounds.participants import Participants
from edge_server.rounds.planning import is_ready, offer_tasks, request_plan, wait_for_devices
from edge_server.rounds.sites import site_rounds
from edge_server.rounds.state import Buffering, Federation, Phase, Step, announce
from schemas.errors import Reason


@dataclass(frozen=True)
class RoundMode:
    """A mode: what follows a plan, what follows an aggregated round, and what the state requires."""

    begin: Callable[[Federation, events.RoundPlanned, float], Step]
    advance: Callable[[Federation, float], Step]
    settle: Callable[[Federation, float], Step]


def mode_of(federation: Federation) -> RoundMode:
    return SYNCHRONOUS if federation.rules.buffering is None else BUFFERED


def _plan(federation: Federation, now: float, ask_for_one: Callable[[Federation], Step]) -> Step:
    agreed, notes = planning.agree_on_data(federation)
    if agreed.phase is Phase.ENDED:
        return agreed, notes
    why = quarantine.shortage_reason(agreed)
    if why:
        planned, commands = abandon(agreed, why, now, untrained=agreed.untrained > 0)
    else:
        planned, commands = ask_for_one(agreed)
    return planned, [*notes, *commands]


def _nobody(event: events.RoundPlanned) -> str:
    return f"no device chosen{f': {event.left_out}' if event.left_out else ''}"


# --- synchronous ---
def _begin(federation: Federation, event: events.RoundPlanned, now: float) -> Step:
    if federation.participants:
        return join_round(federation, event, now)
    if not event.assignments:
        return abandon(federation, _nobody(event), now)
    fresh = replace(
        federation,
        phase=Phase.TRAINING,
        participants=Participants(),
        needed=event.needed,
        replaced=frozenset(),
        masking=secure_aggregation.begin_agreement(federation, event, now),
    )
    begun, offers = offer_tasks(fresh, event.assignments, now)
    return begun, [announce(begun, "training"), note_round_start(begun, event), *offers]


def _advance(federation: Federation, now: float) -> Step:
    not_before = federation.rules.opening.not_before(federation.round, now)
    return wait_for_devices(replace(federation, participants=Participants()), not_before)


def _settle(federation: Federation, now: float) -> Step:
    if federation.phase is Phase.WAITING and is_ready(federation, now):
        return _plan(federation, now, lambda agreed: request_plan(agreed, quarantine.trusted_devices(agreed)))
    if federation.phase is not Phase.TRAINING:
        return federation, []
    if federation.masking is not None:
        return secure_aggregation.settle(federation, federation.masking, now)
    if places := vacant_places(federation, now):
        return request_replacements(federation, places)
    asked = len(federation.participants)
    needed = min(asked, federation.needed or asked)
    if federation.working and federation.done_count < needed:
        return federation, []
    return _finish(federation, needed, now)


def _finish(federation: Federation, needed: int, now: float) -> Step:
    count = federation.done_count
    quorum = max(1, math.ceil(federation.rules.quorum * needed))
    if count < quorum:
        failures = failures_text(federation.participants.values())
        why = f"{count} of {needed} updates, below the quorum{failures}"
        untrained = rollback.training_failed(federation.participants.values(), quorum=quorum)
        return abandon(replace(federation, participants=Participants()), why, now, untrained=untrained)
    parts = federation.participants.values()
    final = Participants.of(part if part.final else mark_missed(part) for part in parts)
    closing, commands = close_round(replace(federation, participants=final), final)
    closing, commands = site_rounds.ask_sites(closing, commands, quorum, now)
    return closing, [announce(closing, "aggregating"), *commands]


# --- buffered ---
def _begin_more(federation: Federation, event: events.RoundPlanned, now: float) -> Step:
    idle = not federation.working
    if not event.assignments and idle:
        return _pause(federation, _nobody(event), now)
    if not event.assignments:
        return replace(federation, phase=Phase.TRAINING, not_before=now + RETRY_S), []
    begun, offers = offer_tasks(replace(federation, phase=Phase.TRAINING), event.assignments, now)
    return begun, [announce(begun, "training"), note_round_start(begun, event), *offers] if idle else offers


def _advance_version(federation: Federation, now: float) -> Step:
    advanced = replace(federation, phase=Phase.TRAINING)
    return advanced, [announce(advanced, "training")]


def _settle_buffer(federation: Federation, now: float) -> Step:
    buffering = _buffering(federation)
    if federation.phase is Phase.WAITING and is_ready(federation, now):
        return _plan(federation, now, _ask_free)
    if federation.phase is not Phase.TRAINING:
        return federation, []
    if federation.done_count >= buffering.size:
        return _close_buffer(federation)
    if federation.working < buffering.concurrency and now >= federation.not_before:
        asking, plan = _ask_free(federation)
        if plan:
            return asking, plan
    if federation.working or _free(federation) or federation.fleet.settles(now):
        return federation, []
    return _make_do(federation, now)


def _ask_free(federation: Federation) -> Step:
    free = _free(federation)
    if not free:
        return federation, []
    vacant = _buffering(federation).concurrency - federation.working
    return request_plan(federation, free, wanted=min(len(free), vacant))


def _buffering(federation: Federation) -> Buffering:
    assert federation.rules.buffering is not None
    return federation.rules.buffering


def _free(federation: Federation) -> tuple[fleet.Device, ...]:
    """The devices that may be planned: without a part since the last aggregation."""
    if len(federation.participants) >= len(federation.fleet.devices):
        return ()
    parts = federation.participants
    return tuple(device for device in quarantine.trusted_devices(federation) if device.name not in parts)


def _make_do(federation: Federation, now: float) -> Step:
    """No device is at work or free: close with the updates there are, or pause and try again."""
    count = federation.done_count
    if count >= max(1, federation.rules.min_clients):
        return _close_buffer(federation)
    if count < len(federation.participants):
        return _pause(federation, f"{count} of {_buffering(federation).size} updates and nobody at work", now)
    return wait_for_devices(federation, now)


def _pause(federation: Federation, why: str, now: float) -> Step:
    """Let devices whose task was lost try again after a pause; counted updates stay counted."""
    counted = Participants.of(federation.participants.having({Status.COUNTED}))
    quorum = max(1, federation.rules.min_clients)
    untrained = rollback.training_failed(federation.participants.values(), quorum=quorum)
    why += failures_text(federation.participants.values())
    return abandon(replace(federation, participants=counted), why, now, untrained=untrained)


def _close_buffer(federation: Federation) -> Step:
    """Aggregate the counted updates; tasks too old for the next round, or without one, are given up."""
    last = federation.round >= federation.rules.rounds
    oldest = federation.round + 1 - _buffering(federation).max_staleness
    over, open_ = [], []
    for part in federation.participants.values():
        if part.final:
            over.append(part)
        elif last or part.assignment.task.round < oldest:
            over.append(mark_missed(part))
        else:
            open_.append(part)
    return close_round(replace(federation, participants=Participants.of(open_)), Participants.of(over))


SYNCHRONOUS = RoundMode(_begin, _advance, _settle)
BUFFERED = RoundMode(_begin_more, _advance_version, _settle_buffer)


GIVEN_BACK = frozenset(
    {Reason.INELIGIBLE, Reason.NO_MEMORY, Reason.NO_SPACE, Reason.INCOMPATIBLE, Reason.BAD_GRAPH}
)  # Reasons for which honest devices decline tasks that others may be able to do
TIME_LEFT = 0.5  # Share of the deadline that must be left for a replacement


def vacant_places(federation: Federation, now: float) -> tuple[str, ...]:
    """The devices to replace now; none during a broadcast, which is short."""
    rules, broadcast = federation.rules, federation.broadcast
    # Called after every event; usually no device has declined.
    if not rules.replaces or federation.participants.count({Status.DECLINED}) <= len(federation.replaced):
        return ()
    if broadcast is not None and not broadcast.over:
        return ()
    if _deadline(federation) - now < TIME_LEFT * rules.deadline_s:
        return ()
    left = federation.participants.having({Status.DECLINED})
    back = (part.device for part in left if part.reason in GIVEN_BACK)
    places = tuple(device for device in back if device not in federation.replaced)
    return places[: len(_free(federation))] if places else ()


def request_replacements(federation: Federation, places: tuple[str, ...]) -> Step:
    asking = replace(federation, replaced=federation.replaced | set(places))
    return request_plan(asking, _free(federation), wanted=len(places), places=places)


def join_round(federation: Federation, event: events.RoundPlanned, now: float) -> Step:
    """Give the planned devices a part in the current round, until its deadline."""
    training = replace(federation, phase=Phase.TRAINING)
    return offer_tasks(training, event.assignments, now, deadline=_deadline(federation))


def _deadline(federation: Federation) -> float:
    return max((part.deadline for part in federation.participants.values()), default=0.0)
