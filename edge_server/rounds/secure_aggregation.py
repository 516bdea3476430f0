"""Masked rounds: connects the participants' states to the agreement on masks.

A device without keys or shares in time has missed the round. A cohort that is too small, or an answer that
does not fit, abandons the round, and the next attempt begins with new keys. Only an opened sum closes the
round. The server waits for help as long as for updates: a device that has helped once in a round does not
help again.
"""

import math
from collections.abc import Iterable, Sequence, Set
from dataclasses import replace

from edge_server.rounds.closing import abandon, close_round
from edge_server.rounds.events import CheckUpdate, CloseRound, Command, Note, RoundPlanned, Send, send_refusal
from edge_server.rounds.participant import AT_WORK, mark_missed
from edge_server.rounds.participants import Participants
from edge_server.rounds.rollback import training_failed
from edge_server.rounds.state import Federation, Step, announce
from edge_server.security.secure_aggregation import protocol as machine
from edge_server.security.secure_aggregation.protocol import MaskAgreement, OpenedSecrets, Stage
from schemas import messages
from schemas.errors import PeerError, Reason

ASK_AGAIN_S = 5.0  # Seconds before an unanswered request for help is repeated


def begin_agreement(federation: Federation, event: RoundPlanned, now: float) -> MaskAgreement | None:
    """The agreement for a plan with masked tasks; None if nothing is masked."""
    given = event.assignments.items()
    tasks = {name: assignment.task for name, assignment in given if assignment.task.masking is not None}
    return MaskAgreement(tasks, until=now + federation.rules.masking_step_s) if tasks else None


def on_message(
    federation: Federation, message: messages.KeyAdvertisement | messages.KeyShares | messages.UnmaskAnswer
) -> Step:
    """Take a device's message for the agreement, or refuse it, naming its attempt."""
    if federation.masking is None and isinstance(message, messages.UnmaskAnswer):
        return federation, []  # other answers were enough
    if federation.masking is None:
        return federation, [_refusal(message, Reason.STALE_ROUND, "no masks are being agreed")]
    try:
        taken, replies = machine.take_part(federation.masking, message)
    except PeerError as error:
        refusal = _refusal(message, Reason(error.reason), str(error))
        left = _without(federation, message) if isinstance(message, messages.KeyAdvertisement) else federation
        return left, [refusal]
    return replace(federation, masking=taken), _sends(replies)


def _without(federation: Federation, message: messages.KeyAdvertisement) -> Federation:
    """A device that is late, or sends other keys (it was restarted), has missed the round."""
    participant = federation.participants.get(message.device)
    if participant is None or participant.final or participant.assignment.task.attempt != message.attempt:
        return federation
    return replace(
        federation, participants=federation.participants.with_participant(mark_missed(participant))
    )


def with_segments(federation: Federation, commands: Sequence[Command]) -> list[Command]:
    """Add to each check the segments that a masked update must have; none before the masks are agreed."""
    masking = federation.masking
    if masking is None or not any(isinstance(command, CheckUpdate) for command in commands):
        return list(commands)
    wanted = masking.sent_segments if masking.stage is Stage.MASKING else ()
    return [
        replace(command, segments=wanted) if isinstance(command, CheckUpdate) else command
        for command in commands
    ]


def settle(federation: Federation, masking: MaskAgreement, now: float) -> Step:
    match masking.stage:
        case Stage.KEYING:
            return _keying(federation, masking, now)
        case Stage.SHARING:
            return _sharing(federation, masking, now)
        case Stage.MASKING:
            return _masking(federation, masking, now)
        case Stage.UNMASKING:
            return _unmasking(federation, masking, now)


def _keying(federation: Federation, masking: MaskAgreement, now: float) -> Step:
    there = {part.device for part in federation.at_work}
    if there - masking.keys.keys() and now < masking.until:
        return federation, []
    keyed = there & masking.keys.keys()
    if len(keyed) < masking.terms.min_holders:
        why = f"{len(keyed)} devices for a masked sum over at least {masking.terms.min_holders}"
        return _abandon(federation, why, now)
    formed, introductions = machine.form_cohort(masking, keyed)
    return _go_on(federation, formed, keyed, introductions, now)


def _sharing(federation: Federation, masking: MaskAgreement, now: float) -> Step:
    there = {part.device for part in federation.at_work}
    if there - masking.shares.keys() and now < masking.until:
        return federation, []
    if len(masking.partners) < masking.min_helpers:
        return _abandon(
            federation, f"{len(masking.partners)} of {masking.min_helpers} devices share keys", now
        )
    agreed, parcels = machine.fix_masks(masking)
    return _go_on(federation, agreed, masking.partners.keys(), parcels, now)


def _masking(federation: Federation, masking: MaskAgreement, now: float) -> Step:
    if federation.done_count + federation.working < masking.min_helpers:
        why = f"{federation.done_count} of {masking.min_helpers} masked updates that a sum needs to be read"
        return _abandon(federation, why, now)
    if federation.working:
        return federation, []
    asked, requests = machine.request_unmasking(masking, federation.updates.keys())
    return _go_on(federation, asked, federation.updates.keys(), requests, now)


def _unmasking(federation: Federation, masking: MaskAgreement, now: float) -> Step:
    try:
        opened = machine.open_sum(masking)
    except PeerError as error:
        return _abandon(federation, f"the sum cannot be read: {error}", now)
    if opened is not None:
        closing, commands = close_round(replace(federation, masking=None), federation.participants)
        read = [
            replace(command, opened=opened) if isinstance(command, CloseRound) else command
            for command in commands
        ]
        return closing, [announce(closing, "aggregating"), *_hidden(opened), *read]
    if now >= masking.until:
        helped = f"{len(masking.answers)} of {masking.min_helpers} devices helped to read the sum"
        return _abandon(federation, helped, now)
    if now < masking.ask_at:
        return federation, []
    again = replace(masking, ask_at=now + ASK_AGAIN_S)
    alive = {device.name for device in federation.fleet.alive()}
    requests = [request for request in machine.pending_requests(masking) if _addressee(request) in alive]
    return replace(federation, masking=again), _sends(requests)


def _hidden(opened: OpenedSecrets) -> list[Command]:
    """Note how many parameters this round leaves unchanged, as a whole tier might learn nothing."""
    sizes = [segment.size for segment in opened.terms.segments]
    hidden = sum(sizes) - sum(sizes[index] for index in opened.segments)
    if not hidden:
        return []
    few = f"have fewer than {opened.terms.min_holders} holders and stay as they are"
    return [Note("sum partly hidden", detail=f"{hidden} of {sum(sizes)} parameters {few}")]


def _go_on(
    federation: Federation,
    masking: MaskAgreement,
    members: Set[str],
    outgoing: Iterable[messages.Message],
    now: float,
) -> Step:
    """The next step, with these members; other participants at work have missed the round."""
    parts = [
        mark_missed(part) if part.status in AT_WORK and part.device not in members else part
        for part in federation.participants.values()
    ]
    patiences = {Stage.MASKING: math.inf, Stage.UNMASKING: federation.rules.deadline_s}
    patience = patiences.get(masking.stage, federation.rules.masking_step_s)
    timed = replace(masking, until=now + patience, ask_at=now + ASK_AGAIN_S)
    return replace(federation, participants=Participants.of(parts), masking=timed), _sends(outgoing)


def _abandon(federation: Federation, why: str, now: float) -> Step:
    masking, untrained = federation.masking, False
    # No device trains before the cohort is agreed on.
    if masking is not None and masking.cohort is not None:
        untrained = training_failed(federation.participants.values(), quorum=masking.min_helpers)
    fresh = replace(federation, participants=Participants(), masking=None)
    return abandon(fresh, why, now, untrained=untrained)


def _sends(outgoing: Iterable[messages.Message]) -> list[Command]:
    return [Send(_addressee(message), message) for message in outgoing]


def _addressee(message: messages.Message) -> str:
    assert isinstance(message, messages.MaskCohort | messages.EntrustedShares | messages.UnmaskRequest)
    return message.device


def _refusal(
    message: messages.KeyAdvertisement | messages.KeyShares | messages.UnmaskAnswer,
    reason: Reason,
    detail: str,
) -> Command:
    named = {"run": message.run, "attempt": message.attempt}
    return send_refusal(message.federation, message.device, reason, detail, **named)
