"""The end of a round: its updates are aggregated, or it is abandoned."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from edge_server.rounds import event_entry, planning, quarantine
from edge_server.rounds.events import CloseRound, Command, Note, RecordStrike, RoundClosed, RoundPlanned
from edge_server.rounds.participant import Participant, Status
from edge_server.rounds.rollback import TRIES, can_undo, request_rollback, vain_rollback_text
from edge_server.rounds.state import Federation, Phase, Step, end
from schemas.errors import Reason, format_count

RETRY_S = 2.0  # Seconds before an abandoned round is planned again; doubles with each abandonment

_DROPPED = frozenset({Status.MISSED, Status.DECLINED})


def close_round(federation: Federation, participants: Mapping[str, Participant]) -> Step:
    """Close the round with these participants, whose statuses are final; the others stay."""
    updates = {
        name: part.update
        for name, part in participants.items()
        if part.status is Status.COUNTED and part.update is not None
    }
    command = CloseRound(
        federation.round,
        updates=updates,
        selected=tuple(sorted(participants)),
        dropped=tuple(sorted(name for name, part in participants.items() if part.status in _DROPPED)),
        rejected={
            name: (part.reason, part.detail)
            for name, part in participants.items()
            if part.status is Status.REFUSED and part.reason is not None
        },
        staleness={name: federation.round - update.round for name, update in updates.items()},
    )
    missed = (part for part in participants.values() if part.status is Status.MISSED)
    late = {part.device: part.update for part in missed if part.update is not None}
    fleet = federation.fleet.with_trained_devices(updates)
    return replace(federation, phase=Phase.CLOSING, fleet=fleet, late=late), [command]


def report_findings(federation: Federation, event: RoundClosed) -> Step:
    """Note and count what the comparison of a round's updates with each other has found."""
    commands: list[Command] = []
    for device, (reason, detail) in sorted(event.refused.items()):
        commands.append(Note("update refused", device, reason, detail))
        if reason is Reason.WRONG_SUM:
            # The gateway has made the sum, not its members.
            federation, more = quarantine.strike_site(federation, federation.sites.of(device), reason)
        else:
            federation, more = quarantine.strike(federation, device, reason)
        commands += more
    for device, detail in sorted(event.exaggerated.items()):
        note = Note("counts with less than it says", device, Reason.EXAGGERATED, detail)
        commands += [note, RecordStrike(device, event.round, Reason.EXAGGERATED)]
    return federation, commands


def abandon(federation: Federation, why: str, now: float, *, untrained: bool = False) -> Step:
    """Plan the round again after a pause, or end a run that has an end after too many attempts.

    If training itself failed (`untrained`) repeatedly, the round before is undone.
    """
    detail = f"round {federation.round}: {why}"
    tried = replace(federation, untrained=federation.untrained + untrained)
    last = federation.abandoned >= federation.rules.attempts
    if untrained and (last or tried.untrained >= TRIES) and can_undo(tried, tried.round - 1):
        return request_rollback(tried, tried.round - 1, detail)
    if last and not federation.rules.endless:
        given_up = f"given up after {federation.abandoned + 1} attempts"
        return end(federation, "failed", f"{detail}; {given_up}{vain_rollback_text(federation)}")
    again = replace(tried, abandoned=min(federation.abandoned + 1, federation.rules.attempts))
    waits, commands = planning.wait_for_devices(again, now + RETRY_S * 2**federation.abandoned)
    return waits, [Note("round abandoned", detail=detail, kind=event_entry.EventKind.ROUND), *commands]


def failures_text(participants: Iterable[Participant]) -> str:
    """What most devices say that declined, or why most updates were refused; empty without either."""
    failed = [part for part in participants if part.status in (Status.DECLINED, Status.REFUSED)]
    # The details of refusals differ by their numbers: one stands for all.
    words = [(part.status is Status.DECLINED and part.detail) or part.reason for part in failed]
    details = {str(part.reason): f" ({part.detail})" for part in failed if part.detail}
    said = Counter(str(each) for each in words if each)
    return "".join(
        f"; {times} of {len(failed)} failed with {words}{details.get(words, '')}"
        for words, times in said.most_common(1)
    )


def note_round_start(federation: Federation, planned: RoundPlanned) -> Note:
    """A note on a round whose devices have just been asked."""
    asked, needed = len(planned.assignments), planned.needed
    spare = f", {needed} are needed" if needed is not None and needed < asked else ""
    what = f"round {federation.round} begun"
    detail = f"{format_count(asked, 'device')} asked{spare}"
    return Note(what, detail=detail, kind=event_entry.EventKind.ROUND, routine=True)
