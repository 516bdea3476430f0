"""How devices have behaved: refusals that look hostile are strikes, and too many strikes a quarantine.

Honest failures (a failed task, a late or unrequested answer) never count, and refusals that transmission
errors or unlike data may cause count half. A round counts at most once per device, by its worst refusal, so
that repeated refusals do not add up. A wrong sum counts three times: its gateway speaks for all devices of a
site. The topic names the sender of a message: without access control anyone can misbehave in another device's
name, and a quarantine then protects the model, not the device.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from schemas.errors import Reason, format_count

ROLLED_BACK, FORGIVEN = "rolled-back", "forgiven"
"""Reasons in the journal that are no refusals: a part in an undone round; an earlier strike is forgiven."""

HOSTILE, DOUBTFUL = 1.0, 0.5

WEIGHTS: Mapping[str, float] = {
    Reason.WRONG_SENDER: HOSTILE,
    Reason.OVERSIZED: HOSTILE,
    Reason.WRONG_SHAPE: HOSTILE,
    Reason.NOT_FINITE: HOSTILE,
    Reason.OUT_OF_BOUNDS: HOSTILE,
    Reason.REPLAYED: HOSTILE,
    Reason.WRONG_SUM: 3 * HOSTILE,
    Reason.HARMFUL: DOUBTFUL,
    Reason.MALFORMED: DOUBTFUL,
    Reason.DIGEST_MISMATCH: DOUBTFUL,
}


@dataclass(frozen=True)
class ReputationRules:
    """`after` strikes within `window` rounds lead to `rounds` rounds of quarantine; 0 disables it."""

    after: int = 3
    window: int = 10
    rounds: int = 10


@dataclass(frozen=True)
class Reputation:
    """One device's recent strikes by round, and the last round of its quarantine.

    `reasons` are those of the strikes, or of the strikes that led to the current quarantine.
    """

    strikes: Mapping[int, float]
    until: int = 0
    reasons: Mapping[int, str] = field(default_factory=dict, compare=False)

    def is_quarantined(self, round_number: int) -> bool:
        return round_number <= self.until

    @property
    def cause(self) -> str:
        if ROLLED_BACK in self.reasons.values():
            return f"its update was part of round {min(self.reasons) - 1}, whose model could not be trained"
        names = ", ".join(sorted(set(self.reasons.values())))
        return f"{format_count(len(self.reasons), 'refusal')} ({names})"


Reputations = Mapping[str, Reputation]


def struck(
    reputations: Reputations, device: str, round_number: int, reason: str, rules: ReputationRules
) -> Reputations:
    """Record a refusal; returns the same mapping if nothing changes."""
    weight = WEIGHTS.get(reason, 0.0)
    before = reputations.get(device, Reputation({}))
    if rules.after == 0 or weight <= before.strikes.get(round_number, 0.0):
        return reputations
    recent = {number: w for number, w in before.strikes.items() if number > round_number - rules.window}
    reasons = _reasons(before, recent, round_number, reason)
    now = Reputation({**recent, round_number: weight}, before.until, reasons)
    if not now.is_quarantined(round_number) and sum(now.strikes.values()) >= rules.after:
        # After the quarantine the device starts without strikes.
        now = replace(now, strikes={}, until=round_number + rules.rounds)
    return {**reputations, device: now}


def _reasons(
    before: Reputation, recent: Mapping[int, float], round_number: int, reason: str
) -> Mapping[int, str]:
    """The reasons of the recent strikes and the new one; during a quarantine they stay as they are."""
    if before.is_quarantined(round_number):
        return before.reasons
    known = {number: why for number, why in before.reasons.items() if number in recent}
    return {**known, round_number: str(reason)}


def left_out(reputations: Reputations, device: str, round_number: int, rules: ReputationRules) -> Reputations:
    """Begin a quarantine in this round, regardless of strikes and their rules."""
    before = reputations.get(device, Reputation({}))
    out = replace(before, until=round_number + rules.rounds, reasons={round_number: ROLLED_BACK})
    return {**reputations, device: out}


def forgiven(reputations: Reputations, device: str, round_number: int, rules: ReputationRules) -> Reputations:
    """Remove the device's strike of this round; a quarantine that began in it ends."""
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
    """All reputations after these rows (device, round, reason), in order."""
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


def quarantined_devices(reputations: Reputations, round_number: int) -> dict[str, int]:
    """The devices in quarantine in this round, each with the last round of it."""
    return {
        device: known.until for device, known in reputations.items() if known.is_quarantined(round_number)
    }
