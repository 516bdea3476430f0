"""A session's state in masked rounds: the mask agreement, and the trained update that waits for masks."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_client.agent.session.events import Command, MaskUpdate, SendMessage
from edge_client.security.secure_aggregation import cohort, protocol
from schemas import messages
from schemas.errors import Reason

AggregationMessage = messages.MaskCohort | messages.EntrustedShares | messages.UnmaskRequest


@dataclass(frozen=True)
class SecureParticipation:
    """The membership of the attempt at hand, if its task is masked.

    `trained` is the unmasked update, which is never sent. `helped` maps runs to the last round that the
    device helped to unmask. With `only_masked` the device declines unmasked training.
    """

    only_masked: bool = False
    membership: cohort.Membership | None = None
    trained: messages.Update | None = None
    helped: Mapping[str, int] = field(default_factory=dict)


Step = tuple[SecureParticipation, list[Command]]


def refusal_reason(participation: SecureParticipation, task: messages.Task) -> tuple[Reason, str] | None:
    """Why the device declines a task; None if it accepts.

    It helps to unmask one sum per round: the difference of two might be a single device's update.
    """
    if isinstance(task, messages.DeliverTask):
        return None
    if task.masking is None:
        unmasked = Reason.INCOMPATIBLE, "this device sends masked updates only"
        return unmasked if participation.only_masked else None
    if task.round <= participation.helped.get(task.run, -1):
        return Reason.ALREADY_COUNTED, "this device has had its part in a masked sum of this round"
    return None


def join(participation: SecureParticipation, device: str, task: messages.TrainTask, entropy: bytes) -> Step:
    """Join a task's cohort unless the device is in it; raises what `protocol.begin` raises."""
    if participation.membership is not None:
        return participation, []
    joined = replace(participation, membership=protocol.begin(device, task, entropy))
    return joined, unanswered_messages(joined)


def receive(participation: SecureParticipation, message: AggregationMessage) -> Step:
    """Take the server's next step, or a repeated one; raises `PeerError` for a step to refuse."""
    known = participation.membership
    if known is None or (message.run, message.attempt) != (known.task.run, known.task.attempt):
        return participation, []
    membership, reply = _next_step(known, message)
    agreed = replace(participation, membership=membership)
    if membership.answer is not None:
        agreed = replace(agreed, helped={**participation.helped, message.run: message.round})
    masking, commands = mask_when_agreed(agreed)
    return masking, [*([SendMessage(reply)] if reply is not None else []), *commands]


def _next_step(
    membership: cohort.Membership, message: AggregationMessage
) -> tuple[cohort.Membership, messages.Message | None]:
    match message:
        case messages.MaskCohort():
            met = protocol.join_cohort(membership, message)
            return met, met.shares
        case messages.EntrustedShares():
            return protocol.accept_shares(membership, message), None
        case messages.UnmaskRequest():
            helped = protocol.unmask(membership, message)
            return helped, helped.answer[1] if helped.answer is not None else None


def is_waiting_for(participation: SecureParticipation, message: AggregationMessage) -> bool:
    """Whether the agreement cannot go on without this step."""
    known = participation.membership
    if known is None or isinstance(message, messages.UnmaskRequest):
        return False
    if isinstance(message, messages.MaskCohort):
        return known.cohort is None
    return known.cohort is not None and not known.ready


def mask_when_agreed(participation: SecureParticipation) -> Step:
    known, update = participation.membership, participation.trained
    if update is None or known is None or not known.ready:
        return participation, []
    return replace(participation, trained=None), [MaskUpdate(update, known)]


def unanswered_messages(participation: SecureParticipation) -> list[Command]:
    """The device's keys until the cohort is known, then its shares until the others' arrive, then nothing."""
    known = participation.membership
    if known is None or known.ready:
        return []
    return [SendMessage(known.shares if known.shares is not None else protocol.advertisement(known))]


def masked_rounds(participation: SecureParticipation) -> Mapping[str, int]:
    """The last round of each run in which the device had keys: a later process must not join these again."""
    known = participation.membership
    now = {known.task.run: known.task.round} if known is not None else {}
    return {**participation.helped, **now}
