"""One device in a cohort that masks its updates, as a pure state machine.

    begin -> (send public keys) -> join_cohort -> (send shares) -> accept_shares -> (send the masked update)
    -> unmask

Bonawitz et al. 2017 (see `masks`), figure 4, against a server that follows the protocol but is curious. The
server can read nothing but sums over at least `min_holders` devices:

- A segment's x_u is masked with the stream of u's own seed for that segment. The server can reconstruct the
  seed only from `needed` shares, each encrypted for another device.
- A device reveals, of each member, EITHER the shares of its seeds (it survived: its own stream is removed,
  and the pairwise streams cancel in the sum, but in no smaller one) OR that of its mask key (it dropped: the
  pairwise streams with it are removed; its seeds stay hidden, so that its late update stays masked). It
  answers a single set of survivors per attempt. As `needed` is more than half, two halves of a cohort that
  receive different survivors cannot both give enough shares; at 2/3, the default, that holds with up to a
  third of the cohort colluding with the server.
- A segment with fewer than `min_holders` holders in the cohort is not sent. A segment that falls below by
  dropouts has been sent, but its seeds are shared separately, and no device reveals a share of them. A
  revealed mask key removes the pairwise streams of its owner in every segment, but the survivors' values
  stay masked with their own seeds.
- A device helps to unmask one sum per round, also if the round is repeated (see `session`): the difference
  of two sums over nearly the same devices might be a single device's update.
- Coordinates of different segments are never added, so the difference of sums over nested sets of holders
  reveals no coordinate. It does reveal sums of weights, which devices state in clear text anyway.

The caller supplies the randomness (`entropy`): 32 new bytes for each attempt.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from edge_client.security.secure_aggregation import keys
from edge_client.security.secure_aggregation.cohort import (
    Membership,
    open_parcel,
    private_key,
    seal_parcel,
    segment_seed,
    split_secrets,
)
from schemas import errors, messages
from schemas.errors import InvariantError, PeerError
from schemas.security.secure_aggregation import MaskingTerms, Member

if TYPE_CHECKING:
    from edge_client.security.secure_aggregation.masks import Masks, Scale


def begin(device: str, task: messages.TrainTask, entropy: bytes) -> Membership:
    """The membership for a masked task; raises `PeerError` if the terms lack the task's sub-model."""
    if task.masking is None or task.spec not in task.masking.specs:
        raise PeerError("the task's sub-model is not among those to mask", reason=errors.Reason.WRONG_SHAPE)
    if len(entropy) != keys.ENTROPY_BYTES:
        raise InvariantError(f"expected {keys.ENTROPY_BYTES} bytes of entropy, got {len(entropy)}")
    return Membership(device, task, entropy)


def advertisement(membership: Membership) -> messages.KeyAdvertisement:
    """The device's public keys; the same at every call."""
    mask_key, share_key = (keys.public_key(private_key(membership, use)).hex() for use in ("mask", "share"))
    return messages.KeyAdvertisement(**membership.header, mask_key=mask_key, share_key=share_key)


def join_cohort(membership: Membership, cohort: messages.MaskCohort) -> Membership:
    """Share the device's secrets among the cohort; raises `PeerError` for an unacceptable cohort.

    A repeated message changes nothing; another cohort for the same attempt is refused.
    """
    if membership.cohort is not None:
        if membership.cohort != cohort:
            raise PeerError("a second cohort for one attempt", reason=errors.Reason.STALE_ROUND)
        return membership
    _check_cohort(membership, cohort)
    joined = replace(membership, cohort=cohort)
    others = [name for name in joined.members if name != joined.device]
    parcels = split_secrets(joined, others).items()
    shares = {name: seal_parcel(joined, name, parcel) for name, parcel in parcels}
    return replace(joined, shares=messages.KeyShares(**joined.header, shares=shares))


def _check_cohort(membership: Membership, cohort: messages.MaskCohort) -> None:
    """Check the device's own conditions, which do not rely on the server."""
    terms, keys_sent = membership.terms, advertisement(membership)
    itself = Member(
        name=membership.device,
        sub_model=terms.specs.index(membership.task.spec),
        mask_key=keys_sent.mask_key,
        share_key=keys_sent.share_key,
    )
    if itself not in cohort.members:
        raise PeerError("the cohort does not list this device as it is", reason=errors.Reason.NOT_SELECTED)
    if len({member.name for member in cohort.members}) != len(cohort.members):
        raise PeerError("the cohort names a device twice")
    if any(member.sub_model >= len(terms.specs) for member in cohort.members):
        raise PeerError("the cohort names a sub-model that is not there")
    if len(cohort.members) < terms.min_holders:
        raise PeerError(f"a cohort of {len(cohort.members)} is below {terms.min_holders} holders")


def accept_shares(membership: Membership, message: messages.EntrustedShares) -> Membership:
    """Take the shares of the other members; from now on the masks are agreed with exactly these members.

    Raises `PeerError` for parcels that cannot be decrypted, because they are of another cohort.
    """
    if membership.cohort is None:
        raise PeerError("shares before the cohort", reason=errors.Reason.STALE_ROUND)
    senders = message.shares.keys()
    if membership.entrusted is not None:
        if membership.entrusted.keys() - {membership.device} != senders:
            raise PeerError("masks were agreed with others", reason=errors.Reason.STALE_ROUND)
        return membership
    if not senders <= membership.members.keys() - {membership.device}:
        raise PeerError("shares of a device outside the cohort")
    if len(senders) + 1 < membership.min_helpers:
        raise PeerError(f"masks agreed with {len(senders)} others could not be unmasked")
    taken = {sender: open_parcel(membership, sender, text) for sender, text in message.shares.items()}
    for sender, parcel in taken.items():
        if len(parcel) != 1 + len(membership.terms.segments_of(membership.members[sender].sub_model)):
            raise PeerError(f"{sender} shares {len(parcel)} secrets")
    own = split_secrets(membership, [membership.device])
    return replace(membership, entrusted={**taken, **own})


def masks(membership: Membership) -> "tuple[Masks, Scale]":
    """The keys of this device's masks for every segment with enough holders, and the scale of numbers."""
    from edge_client.security.secure_aggregation.masks import Masks, Scale, pair_key

    partners, me, terms = membership.partners, membership.device, membership.terms
    private, others = private_key(membership, "mask"), partners.keys() - {me}
    secrets = {name: keys.agree(private, bytes.fromhex(partners[name].mask_key)) for name in others}
    added: dict[int, tuple[bytes, ...]] = {}
    subtracted: dict[int, tuple[bytes, ...]] = {}
    for segment in set(membership.own_segments) & set(revealed_segments(terms, partners)):
        holders = {name for name in others if partners[name].sub_model in terms.segments[segment].holders}
        pairs = {name: pair_key(secrets[name], segment, membership.context) for name in holders}
        own = segment_seed(membership, segment)
        added[segment] = (own, *(key for name, key in pairs.items() if name > me))
        subtracted[segment] = tuple(key for name, key in pairs.items() if name < me)
    return Masks(added, subtracted), Scale(terms.value_range, terms.max_weight, len(membership.members))


def revealed_segments(terms: MaskingTerms, members: Mapping[str, Member]) -> tuple[int, ...]:
    """The segments with at least `min_holders` holders among these members."""
    return tuple(
        index
        for index, segment in enumerate(terms.segments)
        if sum(member.sub_model in segment.holders for member in members.values()) >= terms.min_holders
    )


def unmask(membership: Membership, request: messages.UnmaskRequest) -> Membership:
    """Help to unmask the sum over these survivors, once; the answer is in the membership returned.

    Raises `PeerError` for another set of survivors than before, and for too small a set.
    """
    survivors = frozenset(request.survivors)
    if membership.entrusted is None:
        raise PeerError("no masks are agreed", reason=errors.Reason.STALE_ROUND)
    if membership.answer is not None:
        if membership.answer[0] != survivors:
            raise PeerError("another set of survivors than before", reason=errors.Reason.ALREADY_COUNTED)
        return membership
    if not survivors <= membership.entrusted.keys() or membership.device not in survivors:
        raise PeerError("these are not survivors of this device's cohort", reason=errors.Reason.NOT_SELECTED)
    if len(survivors) < membership.min_helpers:
        raise PeerError(f"{len(survivors)} survivors are too few", reason=errors.Reason.OUT_OF_BOUNDS)
    return replace(membership, answer=(survivors, _answer(membership, survivors)))


def _answer(membership: Membership, survivors: frozenset[str]) -> messages.UnmaskAnswer:
    """The shares of survivors' seeds and of dropped devices' mask keys."""
    assert membership.entrusted is not None
    terms, partners = membership.terms, membership.partners
    shown = revealed_segments(terms, {name: partners[name] for name in survivors})
    seeds, lost = {}, {}
    for name, parcel in membership.entrusted.items():
        if name in survivors:
            held = dict(zip(terms.segments_of(partners[name].sub_model), parcel[1:], strict=True))
            seeds[name] = tuple(_written(held[index]) for index in shown if index in held)
        else:
            lost[name] = _written(parcel[0])
    return messages.UnmaskAnswer(**membership.header, seeds=seeds, keys=lost)


def _written(share: int) -> str:
    return share.to_bytes(keys.SHARE_BYTES, "big").hex()
