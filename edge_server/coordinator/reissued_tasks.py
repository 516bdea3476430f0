"""The open tasks of a run that was restored from a backup get new numbers.

After the backup the server may have gone on: devices may have been given later tasks, and ignore earlier
ones; others have the receipt of an update which the backup lacks. Under a new number they take the
same task again, from the same model.
"""

from collections import defaultdict
from dataclasses import replace

from edge_server.rounds.participant import AT_WORK, Participant
from edge_server.rounds.participants import Participants
from edge_server.rounds.state import Federation, Phase
from edge_server.security.manifest_signer import ManifestSigner
from edge_server.storage.journal import Journal


def reissue_tasks(
    federation: Federation, restored: int, signer: ManifestSigner, journal: Journal, *, now: float
) -> Federation:
    """The federation with open tasks of attempts up to `restored` under later ones, journalled and signed.

    They have the full time from `now` on, in seconds of the server's clock. Accepted updates, and tasks that
    a later start of the server finds again, stay as they are.
    """
    by_attempt: dict[int, list[Participant]] = defaultdict(list)
    for participant in federation.participants.values():
        attempt = participant.assignment.task.attempt
        if participant.status in AT_WORK and attempt <= restored:
            by_attempt[attempt].append(participant)
    changed = dict(federation.participants)
    last, deadline = federation.attempt, now + federation.rules.deadline_s
    for _, participants in sorted(by_attempt.items()):
        last += 1
        again = [_again(participant, last, signer) for participant in participants]
        changed |= {part.device: replace(part, deadline=deadline, began=now) for part in again}
        journal.write_planning(
            last,
            again[0].assignment.task.round,
            {participant.device: participant.assignment for participant in again},
            deliver=federation.phase is Phase.DELIVERING,
        )
    return replace(federation, attempt=last, participants=Participants.of(changed.values()))


def _again(participant: Participant, attempt: int, signer: ManifestSigner) -> Participant:
    """The participant as it was offered, with the task under a new number, signed if it was."""
    before, assignment = participant.assignment.task.manifest, participant.assignment
    task = assignment.task.model_copy(update={"attempt": attempt, "manifest": None})
    if before is not None:
        parent = before.manifest.parent_sha256 or ""
        task = signer.task(task, participant.device, parent_sha256=parent)
    return Participant(participant.device, replace(assignment, task=task), participant.deadline)
