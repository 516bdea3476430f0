"""A session's part in masked rounds: what it says and when, and the trained update that waits for masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from edge_client.agent.session.events import Command, MaskUpdate, SendMessage
from edge_client.security.secure_aggregation import protocol
from edge_client.security.secure_aggregation.cohort import Membership
from schemas.messages import EntrustedShares, MaskCohort, Message, Task, UnmaskRequest, Update
from schemas.values import Reason

AggregationMessage = MaskCohort | EntrustedShares | UnmaskRequest


@dataclass(frozen=True)
class SecureParticipation:
    """The membership of the attempt at hand, if its task is masked.

    `trained` is never sent: it waits for the masks. `helped` is the last round of each run that the device
    helped to unmask. One that is `only_masked` trains for nothing else.
    """

    only_masked: bool = False
    membership: Membership | None = None
    trained: Update | None = None
    helped: Mapping[str, int] = field(default_factory=dict)


Step = tuple[SecureParticipation, list[Command]]


def unwilling(partaking: SecureParticipation, task: Task) -> tuple[Reason, str] | None:
    """Why the device will not train for this task; None where it will.

    It helps with one sum per round: the difference between two might be a single device's update.
    """
    if task.action != "train":
        return None
    if task.masking is None:
        bare = Reason.INCOMPATIBLE, "this device sends masked updates only"
        return bare if partaking.only_masked else None
    if task.round <= partaking.helped.get(task.run, -1):
        return Reason.ALREADY_COUNTED, "this device has had its part in a masked sum of this round"
    return None


def join(partaking: SecureParticipation, device: str, task: Task, entropy: bytes) -> Step:
    """Take part in a task's cohort, if the device does not already; raises what `member.begin` does."""
    if partaking.membership is not None:
        return partaking, []
    joined = replace(partaking, membership=protocol.begin(device, task, entropy))
    return joined, unheard(joined)


def hear(partaking: SecureParticipation, message: AggregationMessage) -> Step:
    """Take the server's next step, or an earlier one said again; raises `PeerError` for one to refuse."""
    known = partaking.membership
    if known is None or (message.run, message.attempt) != (known.task.run, known.task.attempt):
        return partaking, []
    heard, said = _heard(known, message)
    agreed = replace(partaking, membership=heard)
    if heard.answer is not None:
        agreed = replace(agreed, helped={**partaking.helped, message.run: message.round})
    masking, commands = _mask_when_agreed(agreed)
    return masking, [*([SendMessage(said)] if said is not None else []), *commands]


def _heard(membership: Membership, message: AggregationMessage) -> tuple[Membership, Message | None]:
    match message:
        case MaskCohort():
            met = protocol.meet(membership, message)
            return met, met.shares
        case EntrustedShares():
            return protocol.entrust(membership, message), None
        case UnmaskRequest():
            helped = protocol.unmask(membership, message)
            return helped, helped.answer[1] if helped.answer is not None else None


def needs(partaking: SecureParticipation, message: AggregationMessage) -> bool:
    """Whether this is the very step that the device waits for, so that without it there is no going on."""
    known = partaking.membership
    if known is None or isinstance(message, UnmaskRequest):
        return False
    return (
        known.cohort is None
        if isinstance(message, MaskCohort)
        else known.cohort is not None and not known.ready
    )


def trained(partaking: SecureParticipation, update: Update) -> Step:
    """The bare update is there: mask it as soon as masks are agreed."""
    return _mask_when_agreed(replace(partaking, trained=update))


def _mask_when_agreed(partaking: SecureParticipation) -> Step:
    known, bare = partaking.membership, partaking.trained
    if bare is None or known is None or not known.ready:
        return partaking, []
    return replace(partaking, trained=None), [MaskUpdate(bare, known)]


def unheard(partaking: SecureParticipation) -> list[Command]:
    """The keys until the cohort is known, its shares until those of the others come; then nothing."""
    known = partaking.membership
    if known is None or known.ready:
        return []
    return [SendMessage(known.shares if known.shares is not None else protocol.advertisement(known))]


def met(partaking: SecureParticipation) -> Mapping[str, int]:
    """The last round of each run that the device has masked for: what a later process may not do again."""
    known = partaking.membership
    now = {known.task.run: known.task.round} if known is not None else {}
    return {**partaking.helped, **now}


def left(partaking: SecureParticipation) -> SecureParticipation:
    """Without the task at hand."""
    return replace(partaking, membership=None, trained=None)
