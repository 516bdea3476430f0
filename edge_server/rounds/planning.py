"""Before training: wait for devices, request a plan, offer its tasks."""

from collections.abc import Mapping
from dataclasses import replace

from edge_server.rounds import participant as part
from edge_server.rounds.broadcast import handlers
from edge_server.rounds.events import Assignment, Command, PlanRound
from edge_server.rounds.exclusions import excluded_devices
from edge_server.rounds.fleet import Device
from edge_server.rounds.participant import Participant
from edge_server.rounds.state import Federation, Phase, Step, announce, with_participant


def wait_for_devices(federation: Federation, not_before: float) -> Step:
    """Wait until `not_before`, and for enough devices."""
    waits = replace(federation, phase=Phase.WAITING, not_before=not_before)
    return waits, [announce(waits, "waiting")]


def is_ready(federation: Federation, now: float) -> bool:
    """Whether a waiting run may continue: it is time, enough devices are connected, and rounds open."""
    rules = federation.rules
    begun = federation.attempt > 0
    enough = rules.min_clients if begun else max(rules.start_clients, rules.min_clients)
    if now < federation.not_before or len(federation.fleet.devices) < enough or federation.fleet.settles(now):
        return False
    if len(federation.fleet.able()) < enough:
        return False
    return rules.opening.demand(federation.round, federation.fleet).met


def request_plan(
    federation: Federation,
    devices: tuple[Device, ...],
    *,
    wanted: int | None = None,
    places: tuple[str, ...] = (),
) -> Step:
    """Request a plan of the round with some of `devices`: `wanted` of them if others are at work.

    `places` are the devices that they replace.
    """
    first = wanted is None or federation.plannings == 0
    planning = replace(
        federation,
        phase=Phase.PLANNING,
        attempt=federation.attempt + 1,
        plannings=federation.plannings + 1,
    )
    plan = PlanRound(
        federation.round,
        planning.attempt,
        devices,
        retry=federation.plannings,
        over_select=federation.rules.over_select,
        wanted=wanted,
        keep=_in_use(federation),
        places=places,
        left_out=excluded_devices(federation, devices) if first else (),
        known=len(federation.fleet.devices),
        classes=federation.classes.names,
        columns=federation.columns.columns,
    )
    return planning, [plan]


def _in_use(federation: Federation) -> frozenset[str]:
    """The blobs of open tasks, and of updates that are claimed or wait to be aggregated."""
    tasks = [part.assignment.task for part in federation.at_work]
    named = {ref.digest for task in tasks for ref in task.blobs.values()}
    claims = [part.update for part in federation.at_work if part.update is not None]
    updates = [*claims, *federation.updates.values()]
    return frozenset(named | {update.sent.digest for update in updates if update.sent is not None})


def offer_tasks(
    federation: Federation,
    assignments: Mapping[str, Assignment],
    now: float,
    *,
    deadline: float | None = None,
) -> Step:
    """Make the planned devices participants and offer each its task, due at `deadline` or in `deadline_s`."""
    commands: list[Command] = []
    deadline = now + federation.rules.deadline_s if deadline is None else deadline
    for device, assignment in assignments.items():
        participant = Participant(device, assignment, deadline=deadline, began=now)
        federation, offers = with_participant(federation, part.offer(participant, now))
        commands += offers
    offered = [federation.participants[device] for device in assignments]
    return handlers.start_broadcast(federation, offered, now), commands
