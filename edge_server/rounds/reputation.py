"""How devices have behaved: refusals that look hostile are strikes, and too many of them a quarantine.

Honest failures (a task that failed, an answer that is late or not asked for) never count, and what may have
been damaged on the way counts half. A round counts at most once per device, by the worst in it, so that no
flood of one kind adds up. Who a message is from is what its topic says: without access control anyone may
behave badly in another device's name, and a quarantine then protects the model, not the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from schemas.values import Reason

ROLLED_BACK, FORGIVEN = "rolled-back", "forgiven"
"""Rows of the journal beside refusals: a part in a round that was undone; what counts no more."""

HOSTILE, DOUBTFUL = 1.0, 0.5

WEIGHTS: Mapping[str, float] = {
    Reason.WRONG_SENDER: HOSTILE,
    Reason.OVERSIZED: HOSTILE,
    Reason.WRONG_SHAPE: HOSTILE,
    Reason.NOT_FINITE: HOSTILE,
    Reason.OUT_OF_BOUNDS: HOSTILE,
    Reason.REPLAYED: HOSTILE,
    Reason.HARMFUL: HOSTILE,
    Reason.MALFORMED: DOUBTFUL,
    Reason.DIGEST_MISMATCH: DOUBTFUL,
}


@dataclass(frozen=True)
class ReputationRules:
    """`after` strikes within `window` rounds lead to `rounds` rounds of quarantine; after 0 there is none."""

    after: int = 3
    window: int = 10
    rounds: int = 10


@dataclass(frozen=True)
class Reputation:
    """One device's strikes by round, those of the window, and the last round that it is left out of.

    `reasons` are those of the strikes, or of the strikes that led to the quarantine it is in.
    """

    strikes: Mapping[int, float]
    until: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict, compare=False)

    def quarantined(self, round_number: int) -> bool:
        """Whether the device is left out of this round."""
        return round_number <= self.until

    @property
    def cause(self) -> str:
        """What counts against it, in words."""
        if ROLLED_BACK in self.reasons.values():
            return f"its update was part of round {min(self.reasons) - 1}, whose model nobody could train"
        names = ", ".join(sorted(set(self.reasons.values())))
        return f"{len(self.reasons)} refusal{'s' if len(self.reasons) != 1 else ''} ({names})"


Reputations = Mapping[str, Reputation]


def struck(
    reputations: Reputations, device: str, round_number: int, reason: str, rules: ReputationRules
) -> Reputations:
    """Take a refusal; the very same mapping where it changes nothing."""
    weight = WEIGHTS.get(reason, 0.0)
    before = reputations.get(device, Reputation({}))
    if rules.after == 0 or weight <= before.strikes.get(round_number, 0.0):
        return reputations
    recent = {number: one for number, one in before.strikes.items() if number > round_number - rules.window}
    now = Reputation(
        {**recent, round_number: weight}, before.until, _reasons(before, recent, round_number, reason)
    )
    if not now.quarantined(round_number) and sum(now.strikes.values()) >= rules.after:
        # Served, the quarantine leaves a clean slate.
        now = replace(now, strikes={}, until=round_number + rules.rounds)
    return {**reputations, device: now}


def _reasons(
    before: Reputation, recent: Mapping[int, float], round_number: int, reason: str
) -> Mapping[int, str]:
    """Those of the recent strikes with one more; whoever is in quarantine is there for what led to it."""
    if before.quarantined(round_number):
        return before.reasons
    known = {number: why for number, why in before.reasons.items() if number in recent}
    return {**known, round_number: str(reason)}


def left_out(reputations: Reputations, device: str, round_number: int, rules: ReputationRules) -> Reputations:
    """A quarantine from this round on, without a strike and whatever the rules say of strikes."""
    before = reputations.get(device, Reputation({}))
    out = replace(before, until=round_number + rules.rounds, reasons={round_number: ROLLED_BACK})
    return {**reputations, device: out}


def forgiven(reputations: Reputations, device: str, round_number: int, rules: ReputationRules) -> Reputations:
    """What counted against the device in this round counts no more; a quarantine that began in it is over."""
    before = reputations.get(device)
    if before is None:
        return reputations
    strikes = {number: weight for number, weight in before.strikes.items() if number != round_number}
    reasons = {number: why for number, why in before.reasons.items() if number != round_number}
    until = 0 if before.until == round_number + rules.rounds else before.until
    return {**reputations, device: Reputation(strikes, until, reasons)}


def replay_strikes(
    rows: Iterable[tuple[str, int, str]], rules: ReputationRules, reputations: Reputations | None = None
) -> Reputations:
    """All devices' reputation after these rows in order, each as device, round and reason."""
    reputations = {} if reputations is None else reputations
    for device, round_number, reason in rows:
        match reason:
            case "rolled-back":
                reputations = left_out(reputations, device, round_number, rules)
            case "forgiven":
                reputations = forgiven(reputations, device, round_number, rules)
            case _:
                reputations = struck(reputations, device, round_number, reason, rules)
    return reputations


def quarantined(reputations: Reputations, round_number: int) -> dict[str, int]:
    """Who is left out of this round, each with the last round of that."""
    return {device: one.until for device, one in reputations.items() if one.quarantined(round_number)}
