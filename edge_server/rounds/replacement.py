"""Replace devices that give their tasks back, in synchronous rounds, while there is time."""

from dataclasses import replace

from edge_server.rounds.events import RoundPlanned
from edge_server.rounds.fleet import Device
from edge_server.rounds.participant import Status
from edge_server.rounds.planning import offer_tasks, request_plan
from edge_server.rounds.quarantine import trusted_devices
from edge_server.rounds.state import Federation, Phase, Step
from schemas.values import Reason

GIVEN_BACK = frozenset(
    {Reason.INELIGIBLE, Reason.NO_MEMORY, Reason.NO_SPACE, Reason.INCOMPATIBLE, Reason.BAD_GRAPH}
)
"""Reasons for which honest devices decline tasks that others may be able to do."""
TIME_LEFT = 0.5
"""Share of the deadline that must be left for a replacement."""


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
    """Request a plan with as many of the devices that have no part in the round."""
    asking = replace(federation, replaced=federation.replaced | set(places))
    return request_plan(asking, _free(federation), wanted=len(places), places=places)


def join_round(federation: Federation, event: RoundPlanned, now: float) -> Step:
    """Give the planned devices a part in the current round, until its deadline."""
    training = replace(federation, phase=Phase.TRAINING)
    return offer_tasks(training, event.assignments, now, deadline=_deadline(federation))


def _deadline(federation: Federation) -> float:
    return max((part.deadline for part in federation.participants.values()), default=0.0)


def _free(federation: Federation) -> tuple[Device, ...]:
    parts = federation.participants
    return tuple(device for device in trusted_devices(federation) if device.name not in parts)
