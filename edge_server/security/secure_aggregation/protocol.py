"""The server's part in one attempt at a masked round, as a pure state machine.

    keying -> sharing -> masking -> unmasking

It relays and counts: keys until all have arrived or the time is over, then sealed shares in the same way,
then, after the masked updates, the survivors' answers until they are enough. A device that misses a step is
excluded; earlier messages are repeated on request.
"""

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import numpy as np

from edge_client.security.secure_aggregation import keys
from edge_client.security.secure_aggregation.cohort import cohort_context, share_points
from edge_client.security.secure_aggregation.masked_figures import Labels, join
from edge_client.security.secure_aggregation.masks import Ring, Scale, pair_key, shift_vector, weighted_mean
from edge_client.security.secure_aggregation.protocol import revealed_segments
from schemas import errors, messages
from schemas.errors import PeerError
from schemas.security.secure_aggregation import MaskingTerms, Member
from schemas.tensors.arrays import Array

# From masked updates and the survivors' answers to their sums, and to the mean per coordinate.


@dataclass(frozen=True)
class OpenedSecrets:
    """The secrets that the survivors have opened.

    `seeds` are the survivors', by revealed segment; `lost` are the private mask keys of dropped devices.
    """

    terms: MaskingTerms
    cohort: messages.MaskCohort
    survivors: Mapping[str, Member]
    seeds: Mapping[str, Mapping[int, bytes]] = field(repr=False)
    lost: Mapping[str, bytes] = field(repr=False)

    @property
    def segments(self) -> tuple[int, ...]:
        """The segments with enough survivors."""
        return revealed_segments(self.terms, self.survivors)

    @property
    def scale(self) -> Scale:
        """The scale with which devices encode their numbers."""
        return Scale(self.terms.value_range, self.terms.max_weight, len(self.cohort.members))


def open_secrets(
    terms: MaskingTerms,
    cohort: messages.MaskCohort,
    partners: Mapping[str, Member],
    survivors: Iterable[str],
    answers: Mapping[str, messages.UnmaskAnswer],
) -> OpenedSecrets:
    """Combine the secrets from the members' answers; raises `PeerError` for shares that do not fit."""
    points = share_points([member.name for member in cohort.members])
    helpers = sorted(answers)[: terms.min_helpers(len(cohort.members))]
    weights = keys.weights_at_zero([points[name] for name in helpers])
    alive = {name: partners[name] for name in sorted(survivors)}
    shown = revealed_segments(terms, alive)
    seeds: dict[str, dict[int, bytes]] = {}
    for name, member in alive.items():
        held = [index for index in shown if index in terms.segments_of(member.sub_model)]
        parts = {points[helper]: _shares(answers[helper], name, len(held)) for helper in helpers}
        seeds[name] = {
            index: _combine_shares(name, {point: shares[place] for point, shares in parts.items()}, weights)
            for place, index in enumerate(held)
        }
    lost = {}
    for name in partners.keys() - alive.keys():
        shares = {points[helper]: _key_share(answers[helper], name) for helper in helpers}
        lost[name] = _combine_shares(name, shares, weights)
        if keys.public_key(lost[name]).hex() != partners[name].mask_key:
            raise PeerError(f"the shares of the key of {name} do not fit")
    return OpenedSecrets(terms, cohort, alive, seeds, lost)


def _shares(answer: messages.UnmaskAnswer, name: str, count: int) -> tuple[int, ...]:
    shares = answer.seeds.get(name, ())
    if len(shares) != count:
        raise PeerError(f"{answer.device} gives {len(shares)} shares of {name}, expected {count}")
    return tuple(int(share, 16) for share in shares)


def _key_share(answer: messages.UnmaskAnswer, name: str) -> int:
    if name not in answer.keys:
        raise PeerError(f"{answer.device} does not give a share of the key of {name}")
    return int(answer.keys[name], 16)


def _combine_shares(name: str, shares: Mapping[int, int], weights: Mapping[int, int]) -> bytes:
    try:
        return keys.combine(shares, weights)
    except ValueError as error:
        raise PeerError(f"the shares of {name}: {error}") from error


def unmasked_sum(opened: OpenedSecrets, segment: int, vectors: Iterable[Ring]) -> Ring:
    """The sum of the survivors' numbers in one segment; `vectors` are sent by its surviving holders."""
    total = np.zeros(opened.terms.segments[segment].size + 1, np.uint32)
    for vector in vectors:
        total += vector
    holders = opened.terms.segments[segment].holders
    alive = [name for name, member in opened.survivors.items() if member.sub_model in holders]
    added, taken = _shared_with_lost(opened, segment, alive)
    own = tuple(opened.seeds[name][segment] for name in alive)
    return shift_vector(total, added=taken, subtracted=(*own, *added))


def _shared_with_lost(
    opened: OpenedSecrets, segment: int, alive: list[str]
) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The mask streams for dropped devices that survivors have added, and those that they have subtracted."""
    members = {member.name: member for member in opened.cohort.members}
    context, holders = cohort_context(opened.cohort, opened.terms), opened.terms.segments[segment].holders
    added: list[bytes] = []
    taken: list[bytes] = []
    for name, private in opened.lost.items():
        if members[name].sub_model not in holders:
            continue
        for survivor in alive:
            secret = keys.agree(private, bytes.fromhex(members[survivor].mask_key))
            (added if name > survivor else taken).append(pair_key(secret, segment, context))
    return tuple(added), tuple(taken)


def mean_over_survivors(
    opened: OpenedSecrets, totals: Mapping[int, Ring], labels: Labels
) -> tuple[dict[str, Array], int]:
    """The weighted mean per coordinate [P], 0 in hidden segments, and the largest sum of weights."""
    means, most = {}, 0
    for index, total in totals.items():
        means[index], weight = weighted_mean(total, opened.scale)
        most = max(most, weight)
    return {name: array.astype(np.float32) for name, array in join(means, labels).items()}, most


COHORT = "sum-of-the-cohort"  # The client name of the single update that a masked round results in


class Stage(StrEnum):
    """What the server waits for: keys, shares, masked updates, answers that unmask."""

    KEYING = "keying"
    SHARING = "sharing"
    MASKING = "masking"
    UNMASKING = "unmasking"


@dataclass(frozen=True)
class MaskAgreement:
    """One attempt: its tasks, and what has arrived in each step, by device.

    `until` is when the current step ends, `ask_at` when to repeat the request to unmask; both in seconds of
    the server's clock.
    """

    tasks: Mapping[str, messages.TrainTask]
    stage: Stage = Stage.KEYING
    keys: Mapping[str, messages.KeyAdvertisement] = field(default_factory=dict)
    cohort: messages.MaskCohort | None = None
    shares: Mapping[str, messages.KeyShares] = field(default_factory=dict)
    survivors: frozenset[str] = frozenset()
    answers: Mapping[str, messages.UnmaskAnswer] = field(default_factory=dict)
    until: float = math.inf
    ask_at: float = math.inf

    @property
    def terms(self) -> MaskingTerms:
        """The masking terms, which all tasks share."""
        terms = next(iter(self.tasks.values())).masking
        assert terms is not None
        return terms

    @property
    def min_helpers(self) -> int:
        """How many members of the cohort must continue."""
        assert self.cohort is not None
        return self.terms.min_helpers(len(self.cohort.members))

    @property
    def partners(self) -> dict[str, Member]:
        """The members that have shared their secrets, so that their masks are agreed."""
        members = self.cohort.members if self.cohort is not None else ()
        return {member.name: member for member in members if member.name in self.shares}

    @property
    def sent_segments(self) -> tuple[int, ...]:
        """The segments that devices send: those with enough holders among the partners."""
        return revealed_segments(self.terms, self.partners)


Step = tuple[MaskAgreement, list[messages.Message]]


def take_part(
    gathering: MaskAgreement, message: messages.KeyAdvertisement | messages.KeyShares | messages.UnmaskAnswer
) -> Step:
    """Take a device's message for a step, or repeat an earlier answer; raises `PeerError` for others."""
    task = gathering.tasks.get(message.device)
    if task is None or (message.run, message.attempt) != (task.run, task.attempt):
        raise PeerError(f"{message.kind} for no masked task of this round", reason=errors.Reason.STALE_ROUND)
    match message:
        case messages.KeyAdvertisement():
            return _on_keys(gathering, message)
        case messages.KeyShares():
            return _on_shares(gathering, message)
        case messages.UnmaskAnswer():
            return _on_answer(gathering, message)


def _on_keys(gathering: MaskAgreement, message: messages.KeyAdvertisement) -> Step:
    if gathering.stage is Stage.KEYING:
        return replace(gathering, keys={**gathering.keys, message.device: message}), []
    members = gathering.cohort.members if gathering.cohort is not None else ()
    listed = message.device in {member.name for member in members}
    if not listed or gathering.keys.get(message.device) != message:
        raise PeerError("the cohort is formed without these keys", reason=errors.Reason.STALE_ROUND)
    return gathering, [_cohort_for(gathering, message.device)]


def _on_shares(gathering: MaskAgreement, message: messages.KeyShares) -> Step:
    if gathering.cohort is None:
        raise PeerError("shares before the cohort", reason=errors.Reason.STALE_ROUND)
    if gathering.stage is not Stage.SHARING:
        if message.device not in gathering.shares:
            raise PeerError("the masks are agreed without these shares", reason=errors.Reason.STALE_ROUND)
        return gathering, [_parcels_for(gathering, message.device)]
    members = {member.name for member in gathering.cohort.members}
    if message.device not in members or message.shares.keys() != members - {message.device}:
        raise PeerError("expected one parcel for every other member of the cohort")
    return replace(gathering, shares={**gathering.shares, message.device: message}), []


def _on_answer(gathering: MaskAgreement, message: messages.UnmaskAnswer) -> Step:
    if gathering.stage is not Stage.UNMASKING or message.device not in gathering.survivors:
        raise PeerError("no request to unmask is open", reason=errors.Reason.STALE_ROUND)
    lost = gathering.partners.keys() - gathering.survivors
    if message.seeds.keys() != gathering.survivors or message.keys.keys() != lost:
        raise PeerError("the answer is about other devices than the request")
    return replace(gathering, answers={**gathering.answers, message.device: message}), []


def form_cohort(gathering: MaskAgreement, still_there: Set[str] | None = None) -> Step:
    """Form the cohort of the devices whose keys have arrived and that are `still_there`; introduce them."""
    members = tuple(
        Member(
            name=name,
            sub_model=gathering.terms.specs.index(gathering.tasks[name].spec),
            mask_key=keys.mask_key,
            share_key=keys.share_key,
        )
        for name, keys in sorted(gathering.keys.items())
        if still_there is None or name in still_there
    )
    some = next(iter(gathering.tasks))
    cohort = messages.MaskCohort(**_about(gathering, some), members=members)
    formed = replace(gathering, stage=Stage.SHARING, cohort=cohort)
    return formed, [_cohort_for(formed, member.name) for member in members]


def fix_masks(gathering: MaskAgreement) -> Step:
    """Fix the masks of the devices whose shares have arrived, and send them their parcels."""
    agreed = replace(gathering, stage=Stage.MASKING)
    return agreed, [_parcels_for(agreed, name) for name in agreed.partners]


def request_unmasking(gathering: MaskAgreement, survivors: Set[str]) -> Step:
    """Ask the `survivors`, whose masked updates have arrived, to open the sum."""
    asked = replace(gathering, stage=Stage.UNMASKING, survivors=frozenset(survivors))
    return asked, pending_requests(asked)


def pending_requests(gathering: MaskAgreement) -> list[messages.Message]:
    """The requests to survivors that have not answered yet."""
    survivors = tuple(sorted(gathering.survivors))
    return [
        messages.UnmaskRequest(**_about(gathering, name), survivors=survivors)
        for name in survivors
        if name not in gathering.answers
    ]


def open_sum(gathering: MaskAgreement) -> OpenedSecrets | None:
    """The secrets that the answers open, once they are enough; raises `PeerError` for inconsistent shares."""
    if gathering.stage is not Stage.UNMASKING or len(gathering.answers) < gathering.min_helpers:
        return None
    assert gathering.cohort is not None
    return open_secrets(
        gathering.terms, gathering.cohort, gathering.partners, gathering.survivors, gathering.answers
    )


def _about(gathering: MaskAgreement, device: str) -> dict[str, Any]:
    task = gathering.tasks[device]
    named = {"federation": task.federation, "device": device, "run": task.run}
    return {**named, "round": task.round, "attempt": task.attempt}


def _cohort_for(gathering: MaskAgreement, device: str) -> messages.Message:
    assert gathering.cohort is not None
    return gathering.cohort.model_copy(update={"device": device})


def _parcels_for(gathering: MaskAgreement, device: str) -> messages.Message:
    partners = gathering.partners
    parcels = {name: gathering.shares[name].shares[device] for name in partners if name != device}
    return messages.EntrustedShares(**_about(gathering, device), shares=parcels)
