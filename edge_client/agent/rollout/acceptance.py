"""Whether a new model is worse than the one before: pure functions of what was measured.

Accuracy is compared on the very same examples, by those that the two models disagree on (McNemar 1947, in the
exact form: a one-sided sign test), so that one example more or less of a few does not decide.
"""

from __future__ import annotations

import math

from edge_client.agent.rollout.events import Comparison, Objection
from edge_client.inference.service.health import Health
from schemas.messages.rollout_terms import Cause, ModelMeasurement, TrialTerms

CHANCE = 0.05
"""A loss that chance alone would bring about more often than this is none."""
SLACK_MS = 0.5
"""Of models that take microseconds the clock's own noise is many times as much."""
LEAST_ERRORS = 3
LEAST_REQUESTS = 50
"""Fewer do not make a mean."""


def judge_comparison(found: Comparison, terms: TrialTerms) -> Objection | None:
    """What speaks against the candidate, if anything."""
    if found.objection is not None:
        return found.objection
    if found.candidate is None or found.running is None:
        return None
    return _accuracy(found, found.running, found.candidate, terms) or _latency(
        found.running.latency_ms, found.candidate.latency_ms, terms
    )


def judge_service(before: Health | None, after: Health | None, terms: TrialTerms) -> Objection | None:
    """What the requests since the switch say against the new model, if anything."""
    if after is None:
        return None
    if after.crashes > terms.crashes:
        return Cause.CRASHES, f"what serves it has crashed {after.crashes} times"
    if after.refusals:
        return Cause.DAMAGED, f"what serves it has refused it {after.refusals} times"
    usual = 0.0 if before is None else before.error_rate
    if after.errors >= LEAST_ERRORS and after.error_rate > usual + terms.error_rate:
        detail = f"{after.errors} of {after.requests} requests failed, {usual:.1%} before"
        return Cause.ERRORS, detail
    if before is None or min(before.requests, after.requests) < LEAST_REQUESTS:
        return None
    if before.mean_ms is None or after.mean_ms is None:
        return None
    return _latency(before.mean_ms, after.mean_ms, terms)


def chance_of(lost: int, won: int) -> float:
    """How often two models that are equally good would differ by `lost` or more of `lost + won` examples."""
    count = lost + won
    ways: int = sum(math.comb(count, k) for k in range(lost, count + 1))
    return ways / (1 << count)


def _accuracy(
    found: Comparison, old: ModelMeasurement, new: ModelMeasurement, terms: TrialTerms
) -> Objection | None:
    worse = found.lost - found.won
    if worse <= terms.accuracy_drop * new.examples or chance_of(found.lost, found.won) >= CHANCE:
        return None
    if old.accuracy is None or new.accuracy is None:
        return None
    detail = f"{new.accuracy:.1%} of {new.examples} examples, {old.accuracy:.1%} before"
    return Cause.ACCURACY, detail


def _latency(old_ms: float, new_ms: float, terms: TrialTerms) -> Objection | None:
    if new_ms <= old_ms * terms.latency_ratio + SLACK_MS:
        return None
    return Cause.LATENCY, f"{new_ms:.3g} ms for one image, {old_ms:.3g} ms before"
