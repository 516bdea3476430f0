"""Whether a new model is worse than the former one: pure functions of measurements.

Accuracy is compared on the examples that the two models disagree on (McNemar 1947, in the exact form: a
one-sided sign test), so that a single example among few does not decide.
"""

import math
from dataclasses import dataclass

from edge_client.agent.offers.trial import Objection
from edge_client.inference.service.health import Health
from schemas.messages.rollout_terms import Cause, ModelMeasurement, TrialTerms
from schemas.values import Variant

CHANCE = 0.05  # Significance level: a loss that is likelier than this by chance does not count
SLACK_MS = 0.5  # Milliseconds below which differences are noise of the clock
MIN_ERRORS = 3
MIN_REQUESTS = 50  # Minimum requests for a mean latency


@dataclass(frozen=True)
class ServedForm:
    """A variant of the offered file that is served in its place, and its sha256."""

    variant: Variant
    digest: str


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples: only the running is right on `lost`, only the new on `won`.

    `running` is None without a model in use. `made`: the candidate is a variant of the offered file.
    Without a `candidate` there is an `objection`.
    """

    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
    lost: int = 0
    won: int = 0
    made: ServedForm | None = None
    objection: Objection | None = None


def judge_comparison(found: Comparison, terms: TrialTerms) -> Objection | None:
    """The objection to the candidate, if any."""
    if found.objection is not None:
        return found.objection
    if found.candidate is None or found.running is None:
        return None
    return _accuracy(found, found.running, found.candidate, terms) or _latency(
        found.running.latency_ms, found.candidate.latency_ms, terms
    )


def judge_service(before: Health | None, after: Health | None, terms: TrialTerms) -> Objection | None:
    """The objection to the new model from its requests since the switch, if any."""
    if after is None:
        return None
    if after.crashes > terms.crashes:
        return Cause.CRASHES, f"the process that serves it has crashed {after.crashes} times"
    if after.refusals:
        return Cause.DAMAGED, f"the process that serves it has refused it {after.refusals} times"
    usual = 0.0 if before is None else before.error_rate
    if after.errors >= MIN_ERRORS and after.error_rate > usual + terms.error_rate:
        detail = f"{after.errors} of {after.requests} requests failed, {usual:.1%} before"
        return Cause.ERRORS, detail
    if before is None or min(before.requests, after.requests) < MIN_REQUESTS:
        return None
    if before.mean_ms is None or after.mean_ms is None:
        return None
    return _latency(before.mean_ms, after.mean_ms, terms)


def chance_of(lost: int, won: int) -> float:
    """The probability that of two equally good models one loses `lost` or more of `lost + won` examples."""
    count = lost + won
    ways: int = sum(math.comb(count, k) for k in range(lost, count + 1))
    return ways / (1 << count)


def _accuracy(
    found: Comparison, old: ModelMeasurement, new: ModelMeasurement, terms: TrialTerms
) -> Objection | None:
    worse = found.lost - found.won
    if worse <= terms.accuracy_drop * new.examples or chance_of(found.lost, found.won) >= CHANCE:
        return None
    text = figures_text(old, new)
    return (Cause.ACCURACY, text) if text else None


def figures_text(old: ModelMeasurement, new: ModelMeasurement) -> str:
    """The leading figures of two models; empty where one has none."""
    if not old.metrics or not new.metrics:
        return ""
    # Imported here: a device's start has no use for arrays.
    from edge_client.data.tasks.words import figure_text

    return f"{figure_text(new.metrics)} of {new.examples} examples, {figure_text(old.metrics)} before"


def _latency(old_ms: float, new_ms: float, terms: TrialTerms) -> Objection | None:
    if new_ms <= old_ms * terms.latency_ratio + SLACK_MS:
        return None
    return Cause.LATENCY, f"{new_ms:.3g} ms for one image, {old_ms:.3g} ms before"
