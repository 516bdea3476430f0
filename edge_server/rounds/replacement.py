"""Another device in the place of one that gives its task back, in synchronous rounds, while there is time."""

from __future__ import annotations

from dataclasses import replace

from edge_server.rounds.events import RoundPlanned
from edge_server.rounds.fleet import Device
from edge_server.rounds.participant import Status
from edge_server.rounds.planning import offer_tasks, request_plan
from edge_server.rounds.quarantine import trusted_devices
from edge_server.rounds.state import Federation, Phase, Step
from schemas.values import Reason

GIVEN_BACK = frozenset({Reason.INELIGIBLE, Reason.NO_MEMORY, Reason.NO_SPACE, Reason.INCOMPATIBLE})
"""Why devices that are sound do not do their tasks; others may be able to."""
TIME_LEFT = 0.5
"""Of the deadline: with less than that nobody begins anew."""


def vacant_places(federation: Federation, now: float) -> tuple[str, ...]:
    """For whose places others are to be asked now.

    Not while parts of the model are published for several devices: that is over before long.
    """
    rules, broadcast = federation.rules, federation.broadcast
    # Asked after every event: most rounds end here.
    if not rules.replaces or federation.participants.count({Status.DECLINED}) <= len(federation.replaced):
        return ()
    if broadcast is not None and not broadcast.over:
        return ()
    if _deadline(federation) - now < TIME_LEFT * rules.deadline_s:
        return ()
    left = federation.participants.having({Status.DECLINED})
    back = (one.device for one in left if one.reason in GIVEN_BACK)
    places = tuple(device for device in back if device not in federation.replaced)
    return places[: len(_free(federation))] if places else ()


def request_replacements(federation: Federation, places: tuple[str, ...]) -> Step:
    """Ask for a plan with as many of those who have no part in the round."""
    asking = replace(federation, replaced=federation.replaced | set(places))
    return request_plan(asking, _free(federation), wanted=len(places), places=places)


def join_round(federation: Federation, event: RoundPlanned, now: float) -> Step:
    """The devices of the plan have a part in the round that is under way, until its deadline."""
    training = replace(federation, phase=Phase.TRAINING)
    return offer_tasks(training, event.assignments, now, deadline=_deadline(federation))


def _deadline(federation: Federation) -> float:
    return max((one.deadline for one in federation.participants.values()), default=0.0)


def _free(federation: Federation) -> tuple[Device, ...]:
    return tuple(one for one in trusted_devices(federation) if one.name not in federation.participants)
