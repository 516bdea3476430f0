"""What a member of a cohort says, and when: an answer to each message of the server, repeated until heard."""

from __future__ import annotations

from edge_client.secure import member
from edge_client.secure.membership import Membership
from schemas.messages import EntrustedShares, MaskCohort, Message, UnmaskRequest


def hear(
    membership: Membership, message: MaskCohort | EntrustedShares | UnmaskRequest
) -> tuple[Membership, Message | None]:
    """Take the server's next step, or an earlier one said again; raises `PeerError` for one to refuse."""
    match message:
        case MaskCohort():
            met = member.meet(membership, message)
            return met, met.shares
        case EntrustedShares():
            return member.entrust(membership, message), None
        case UnmaskRequest():
            helped = member.unmask(membership, message)
            return helped, helped.answer[1] if helped.answer is not None else None


def needs(membership: Membership, message: MaskCohort | EntrustedShares | UnmaskRequest) -> bool:
    """Whether this is the very step that the device waits for, so that without it there is no going on."""
    match message:
        case MaskCohort():
            return membership.cohort is None
        case EntrustedShares():
            return membership.cohort is not None and not membership.ready
        case UnmaskRequest():
            return False


def unheard(membership: Membership) -> Message | None:
    """The keys until the cohort is known, its shares until those of the others come; then nothing."""
    if membership.cohort is None:
        return member.advertisement(membership)
    return None if membership.ready else membership.shares
