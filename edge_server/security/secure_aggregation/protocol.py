"""The server's part in one attempt at a masked round, as a pure state machine.

    keying -> sharing -> masking -> unmasking

It relays and counts: keys until all have come or the time is up, then sealed shares likewise, then, once
the masked updates are in, the survivors' answers until they are enough. Who misses a step is out; what was
said before is said again when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from edge_client.security.secure_aggregation.protocol import revealed
from edge_server.security.secure_aggregation.unmasking import OpenedSecrets, open_secrets
from schemas.errors import PeerError
from schemas.messages import (
    EntrustedShares,
    KeyAdvertisement,
    KeyShares,
    MaskCohort,
    Message,
    TrainTask,
    UnmaskAnswer,
    UnmaskRequest,
)
from schemas.security.secure_aggregation import MaskingTerms, Member
from schemas.values import Reason

COHORT = "sum-of-the-cohort"
"""The name of the one update that a masked round comes to."""


class Stage(StrEnum):
    """What the server waits for: keys, shares, masked updates, help to unmask."""

    KEYING = "keying"
    SHARING = "sharing"
    MASKING = "masking"
    UNMASKING = "unmasking"


@dataclass(frozen=True)
class MaskAgreement:
    """One attempt: the tasks that it is for, and what has come of each step, by device.

    `until` is when the step at hand is over whoever is missing, `ask_at` when to ask again for help; both in
    seconds of the server's clock.
    """

    tasks: Mapping[str, TrainTask]
    stage: Stage = Stage.KEYING
    keys: Mapping[str, KeyAdvertisement] = field(default_factory=dict)
    cohort: MaskCohort | None = None
    shares: Mapping[str, KeyShares] = field(default_factory=dict)
    survivors: frozenset[str] = frozenset()
    answers: Mapping[str, UnmaskAnswer] = field(default_factory=dict)
    until: float = math.inf
    ask_at: float = math.inf

    @property
    def terms(self) -> MaskingTerms:
        """Those of every task."""
        terms = next(iter(self.tasks.values())).masking
        assert terms is not None
        return terms

    @property
    def needed(self) -> int:
        """How many of the cohort must go on."""
        assert self.cohort is not None
        return self.terms.needed(len(self.cohort.members))

    @property
    def partners(self) -> dict[str, Member]:
        """Those whose masks are agreed: they have shared their secrets."""
        members = self.cohort.members if self.cohort is not None else ()
        return {one.name: one for one in members if one.name in self.shares}

    @property
    def sent_segments(self) -> tuple[int, ...]:
        """The segments that devices send: those with holders enough among the partners."""
        return revealed(self.terms, self.partners)


Step = tuple[MaskAgreement, list[Message]]


def take_part(gathering: MaskAgreement, message: KeyAdvertisement | KeyShares | UnmaskAnswer) -> Step:
    """Take a device's part in a step, or say again what it has missed; raises `PeerError` for any other."""
    task = gathering.tasks.get(message.device)
    if task is None or (message.run, message.attempt) != (task.run, task.attempt):
        raise PeerError(f"{message.kind} for no masked task of this round", reason=Reason.STALE_ROUND)
    match message:
        case KeyAdvertisement():
            return _advertised(gathering, message)
        case KeyShares():
            return _shared(gathering, message)
        case UnmaskAnswer():
            return _answered(gathering, message)


def _advertised(gathering: MaskAgreement, message: KeyAdvertisement) -> Step:
    if gathering.stage is Stage.KEYING:
        return replace(gathering, keys={**gathering.keys, message.device: message}), []
    listed = gathering.cohort is not None and message.device in {one.name for one in gathering.cohort.members}
    if not listed or gathering.keys.get(message.device) != message:
        raise PeerError("the cohort is formed without these keys", reason=Reason.STALE_ROUND)
    return gathering, [_cohort_for(gathering, message.device)]


def _shared(gathering: MaskAgreement, message: KeyShares) -> Step:
    if gathering.cohort is None:
        raise PeerError("shares before the cohort", reason=Reason.STALE_ROUND)
    if gathering.stage is not Stage.SHARING:
        if message.device not in gathering.shares:
            raise PeerError("the masks are agreed without these shares", reason=Reason.STALE_ROUND)
        return gathering, [_parcels_for(gathering, message.device)]
    members = {one.name for one in gathering.cohort.members}
    if message.device not in members or message.shares.keys() != members - {message.device}:
        raise PeerError("expected one parcel for every other member of the cohort")
    return replace(gathering, shares={**gathering.shares, message.device: message}), []


def _answered(gathering: MaskAgreement, message: UnmaskAnswer) -> Step:
    if gathering.stage is not Stage.UNMASKING or message.device not in gathering.survivors:
        raise PeerError("nobody has asked to unmask", reason=Reason.STALE_ROUND)
    if message.seeds.keys() != gathering.survivors or message.keys.keys() != (
        gathering.partners.keys() - gathering.survivors
    ):
        raise PeerError("the answer is about other devices than those that were asked about")
    return replace(gathering, answers={**gathering.answers, message.device: message}), []


def form_cohort(gathering: MaskAgreement, still_there: Set[str] | None = None) -> Step:
    """The cohort is those whose keys have come, and who are `still_there`: introduce them to each other."""
    members = tuple(
        Member(
            name=name,
            sub_model=gathering.terms.specs.index(gathering.tasks[name].spec),
            mask_key=said.mask_key,
            share_key=said.share_key,
        )
        for name, said in sorted(gathering.keys.items())
        if still_there is None or name in still_there
    )
    some = next(iter(gathering.tasks))
    cohort = MaskCohort(**_about(gathering, some), members=members)
    formed = replace(gathering, stage=Stage.SHARING, cohort=cohort)
    return formed, [_cohort_for(formed, one.name) for one in members]


def fix_masks(gathering: MaskAgreement) -> Step:
    """The masks are agreed among those whose shares have come: hand the parcels out."""
    agreed = replace(gathering, stage=Stage.MASKING)
    return agreed, [_parcels_for(agreed, name) for name in agreed.partners]


def request_unmasking(gathering: MaskAgreement, survivors: Set[str]) -> Step:
    """The masked updates of `survivors` are in: ask them to open the sum."""
    asked = replace(gathering, stage=Stage.UNMASKING, survivors=frozenset(survivors))
    return asked, pending_requests(asked)


def pending_requests(gathering: MaskAgreement) -> list[Message]:
    """What to ask of those who have not answered yet."""
    survivors = tuple(sorted(gathering.survivors))
    return [
        UnmaskRequest(**_about(gathering, name), survivors=survivors)
        for name in survivors
        if name not in gathering.answers
    ]


def open_sum(gathering: MaskAgreement) -> OpenedSecrets | None:
    """What the answers open, once they are enough; raises `PeerError` where they do not fit together."""
    if gathering.stage is not Stage.UNMASKING or len(gathering.answers) < gathering.needed:
        return None
    assert gathering.cohort is not None
    return open_secrets(
        gathering.terms, gathering.cohort, gathering.partners, gathering.survivors, gathering.answers
    )


def _about(gathering: MaskAgreement, device: str) -> dict[str, Any]:
    task = gathering.tasks[device]
    named = {"federation": task.federation, "device": device, "run": task.run}
    return {**named, "round": task.round, "attempt": task.attempt}


def _cohort_for(gathering: MaskAgreement, device: str) -> Message:
    assert gathering.cohort is not None
    return gathering.cohort.model_copy(update={"device": device})


def _parcels_for(gathering: MaskAgreement, device: str) -> Message:
    partners = gathering.partners
    parcels = {name: gathering.shares[name].shares[device] for name in partners if name != device}
    return EntrustedShares(**_about(gathering, device), shares=parcels)
