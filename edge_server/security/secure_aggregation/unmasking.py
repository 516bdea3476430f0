"""From masked updates and the survivors' answers to their sums, and to the mean per coordinate.

Bonawitz et al. 2017, figure 4, round 4: subtract the survivors' own mask streams, whose seeds are combined
from shares, and the masks that survivors share with dropped devices, from the mask keys of those.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from edge_client.security.secure_aggregation import keys
from edge_client.security.secure_aggregation.cohort import cohort_context, share_points
from edge_client.security.secure_aggregation.masked_figures import Labels, join
from edge_client.security.secure_aggregation.masks import Ring, Scale, pair_key, shift_vector, weighted_mean
from edge_client.security.secure_aggregation.protocol import revealed_segments
from schemas.errors import PeerError
from schemas.messages import MaskCohort, UnmaskAnswer
from schemas.security.secure_aggregation import MaskingTerms, Member
from schemas.tensors.arrays import Array


@dataclass(frozen=True)
class OpenedSecrets:
    """The secrets that the survivors have opened.

    `seeds` are the survivors', by revealed segment; `lost` are the private mask keys of dropped devices.
    """

    terms: MaskingTerms
    cohort: MaskCohort
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
    cohort: MaskCohort,
    partners: Mapping[str, Member],
    survivors: Iterable[str],
    answers: Mapping[str, UnmaskAnswer],
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


def _shares(answer: UnmaskAnswer, name: str, count: int) -> tuple[int, ...]:
    shares = answer.seeds.get(name, ())
    if len(shares) != count:
        raise PeerError(f"{answer.device} gives {len(shares)} shares of {name}, expected {count}")
    return tuple(int(share, 16) for share in shares)


def _key_share(answer: UnmaskAnswer, name: str) -> int:
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
