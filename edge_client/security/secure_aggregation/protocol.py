"""One device in a cohort that masks its updates, as a pure state machine.

    begin -> (advertise keys) -> meet -> (send shares) -> entrusted -> (send the masked update) -> unmask

Bonawitz et al. 2017 (see `masks`), figure 4, against a server that follows the protocol but looks at all it
sees. Why nothing but sums over at least `min_holders` devices is ever readable:

- Before any help, x_u of a segment lies under a stream of u's own seed for that segment, which the server
  can only have from `needed` shares, each sealed for another device.
- A device gives, of each member, EITHER the shares of its seeds (it survived: the stream of its own is taken
  off, those it has in common with others cancel in the sum, and in nothing smaller) OR that of its mask key
  (it dropped: what others masked with it is taken off, its own seeds stay hidden, so that an update of it
  which comes late stays masked). It answers one set of survivors per attempt, ever. As `needed` is more
  than half, two halves of a cohort that are told different survivors cannot both give enough; at 2/3, the
  default, that holds with up to a third of the cohort in league with the server.
- A segment with fewer than `min_holders` holders in the cohort is left out of what is sent. One that falls
  below by dropouts has been sent: its seeds are shared apart from those of all other segments, and no
  device gives a share of these. A mask key that is revealed opens what its owner, who dropped, had in
  common with others in every segment, but what survivors send stays under their seeds there.
- A device helps to open one sum per round, also where the round is tried again (see `session`): from two
  sums over nearly the same devices, trained from the same model, one device's part could be told.
- Coordinates of different segments are never added, so the sum over a tier's holders, taken from that over
  a larger set, says nothing of a coordinate. The sums of weights do: they are of numbers that devices state
  in the open anyway.

Randomness (`entropy`) is the caller's: 32 bytes, fresh for each attempt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edge_client.security.secure_aggregation import keys, shamir
from edge_client.security.secure_aggregation.cohort import (
    Membership,
    parcels,
    private_key,
    sealed,
    seed,
    unsealed,
)
from schemas.errors import InvariantError, PeerError
from schemas.messages import (
    EntrustedShares,
    KeyAdvertisement,
    KeyShares,
    MaskCohort,
    TrainTask,
    UnmaskAnswer,
    UnmaskRequest,
)
from schemas.security.secure_aggregation import MaskingTerms, Member
from schemas.values import Reason

if TYPE_CHECKING:
    from edge_client.security.secure_aggregation.masks import Masks
    from edge_client.security.secure_aggregation.quantization import Scale


def begin(device: str, task: TrainTask, entropy: bytes) -> Membership:
    """A device that was offered a task to mask; raises `PeerError` where the terms leave it out."""
    if task.masking is None or task.spec not in task.masking.specs:
        raise PeerError("the task's sub-model is not among those to mask", reason=Reason.WRONG_SHAPE)
    if len(entropy) != keys.ENTROPY_BYTES:
        raise InvariantError(f"expected {keys.ENTROPY_BYTES} bytes of entropy, got {len(entropy)}")
    return Membership(device, task, entropy)


def advertisement(membership: Membership) -> KeyAdvertisement:
    """The device's public keys; the same however often it is asked."""
    mask_key, share_key = (keys.public_key(private_key(membership, use)).hex() for use in ("mask", "share"))
    return KeyAdvertisement(**membership.about, mask_key=mask_key, share_key=share_key)


def meet(membership: Membership, cohort: MaskCohort) -> Membership:
    """Share the device's secrets among the cohort; raises `PeerError` for a cohort it will not be part of.

    What is said twice changes nothing. Another cohort for the same attempt is refused.
    """
    if membership.cohort is not None:
        if membership.cohort != cohort:
            raise PeerError("a second cohort for one attempt", reason=Reason.STALE_ROUND)
        return membership
    _check_cohort(membership, cohort)
    met = replace(membership, cohort=cohort)
    others = [name for name in met.members if name != met.device]
    shares = {name: sealed(met, name, parcel) for name, parcel in parcels(met, others).items()}
    return replace(met, shares=KeyShares(**met.about, shares=shares))


def _check_cohort(membership: Membership, cohort: MaskCohort) -> None:
    """A device's own conditions, whatever the server says."""
    terms, said = membership.terms, advertisement(membership)
    itself = Member(
        name=membership.device,
        sub_model=terms.specs.index(membership.task.spec),
        mask_key=said.mask_key,
        share_key=said.share_key,
    )
    if itself not in cohort.members:
        raise PeerError("the cohort does not list this device as it is", reason=Reason.NOT_SELECTED)
    if len({one.name for one in cohort.members}) != len(cohort.members):
        raise PeerError("the cohort names a device twice")
    if any(one.sub_model >= len(terms.specs) for one in cohort.members):
        raise PeerError("the cohort names a sub-model that is not there")
    if len(cohort.members) < terms.min_holders:
        raise PeerError(f"a cohort of {len(cohort.members)} is below {terms.min_holders} holders")


def entrust(membership: Membership, message: EntrustedShares) -> Membership:
    """Take what the others entrust to this device; from now on the masks are agreed with exactly these.

    Raises `PeerError` for parcels that cannot be read: these were sealed in another cohort.
    """
    if membership.cohort is None:
        raise PeerError("shares before the cohort", reason=Reason.STALE_ROUND)
    senders = message.shares.keys()
    if membership.entrusted is not None:
        if membership.entrusted.keys() - {membership.device} != senders:
            raise PeerError("masks were agreed with others", reason=Reason.STALE_ROUND)
        return membership
    if not senders <= membership.members.keys() - {membership.device}:
        raise PeerError("shares of a device outside the cohort")
    if len(senders) + 1 < membership.needed:
        raise PeerError(f"masks agreed with {len(senders)} others could never be undone")
    taken = {sender: unsealed(membership, sender, text) for sender, text in message.shares.items()}
    for sender, parcel in taken.items():
        if len(parcel) != 1 + len(membership.terms.held(membership.members[sender].sub_model)):
            raise PeerError(f"{sender} shares {len(parcel)} secrets")
    own = parcels(membership, [membership.device])
    return replace(membership, entrusted={**taken, **own})


def masks(membership: Membership) -> tuple[Masks, Scale]:
    """The keys of this device's masks, for every segment with holders enough, and how to write numbers."""
    from edge_client.security.secure_aggregation.masks import Masks, pair_key
    from edge_client.security.secure_aggregation.quantization import Scale

    partners, me = membership.partners, membership.device
    private = private_key(membership, "mask")
    secrets = {
        name: keys.agree(private, bytes.fromhex(one.mask_key)) for name, one in partners.items() if name != me
    }
    added: dict[int, tuple[bytes, ...]] = {}
    taken: dict[int, tuple[bytes, ...]] = {}
    for segment in set(membership.held) & set(revealed(membership.terms, partners)):
        holders = membership.terms.segments[segment].holders
        pairs = {
            name: pair_key(secret, segment, membership.context)
            for name, secret in secrets.items()
            if partners[name].sub_model in holders
        }
        added[segment] = (seed(membership, segment), *(key for name, key in pairs.items() if name > me))
        taken[segment] = tuple(key for name, key in pairs.items() if name < me)
    terms = membership.terms
    return Masks(added, taken), Scale(terms.value_range, terms.max_weight, len(membership.members))


def revealed(terms: MaskingTerms, members: Mapping[str, Member]) -> tuple[int, ...]:
    """The segments with at least `min_holders` holders among these members."""
    return tuple(
        index
        for index, segment in enumerate(terms.segments)
        if sum(one.sub_model in segment.holders for one in members.values()) >= terms.min_holders
    )


def unmask(membership: Membership, request: UnmaskRequest) -> Membership:
    """Help to unmask the sum over these survivors: once, and never any part of it.

    The answer is in the membership that is returned. Raises `PeerError` for another set of survivors than
    before, and for one that is too small.
    """
    survivors = frozenset(request.survivors)
    if membership.entrusted is None:
        raise PeerError("no masks are agreed", reason=Reason.STALE_ROUND)
    if membership.answer is not None:
        if membership.answer[0] != survivors:
            raise PeerError("another set of survivors than before", reason=Reason.ALREADY_COUNTED)
        return membership
    if not survivors <= membership.entrusted.keys() or membership.device not in survivors:
        raise PeerError("these are not survivors of this device's cohort", reason=Reason.NOT_SELECTED)
    if len(survivors) < membership.needed:
        raise PeerError(f"{len(survivors)} survivors are too few", reason=Reason.OUT_OF_BOUNDS)
    return replace(membership, answer=(survivors, _answer(membership, survivors)))


def _answer(membership: Membership, survivors: frozenset[str]) -> UnmaskAnswer:
    """Shares of seeds of those who survived, of the mask key of those who did not."""
    assert membership.entrusted is not None
    terms, partners = membership.terms, membership.partners
    shown = revealed(terms, {name: partners[name] for name in survivors})
    seeds, lost = {}, {}
    for name, parcel in membership.entrusted.items():
        if name in survivors:
            held = dict(zip(terms.held(partners[name].sub_model), parcel[1:], strict=True))
            seeds[name] = tuple(_written(held[index]) for index in shown if index in held)
        else:
            lost[name] = _written(parcel[0])
    return UnmaskAnswer(**membership.about, seeds=seeds, keys=lost)


def _written(share: int) -> str:
    return share.to_bytes(shamir.SHARE_BYTES, "big").hex()
