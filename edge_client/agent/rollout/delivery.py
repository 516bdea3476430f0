"""A delivered model on trial: compared with the one in use on the device's own data, as in a rollout."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from edge_client.agent.rollout.acceptance import judge_comparison
from edge_client.agent.rollout.comparison import ComparisonRunner, ModelPair
from edge_client.agent.rollout.events import Comparison, Objection
from edge_client.agent.task_context import TaskContext
from edge_client.data.local import LocalData
from edge_client.inference import installed_model
from edge_client.inference.model_slots import Served, ServedModel
from schemas.messages.rollout_terms import TrialTerms
from schemas.values import DeliveryVerdict

log = logging.getLogger(__name__)

FIRST = "no model was in use before"
AGAIN = "it is in use already"
FORCED = "not compared with the model in use before: the federation delivers by force"
UNUSABLE = "the model in use before cannot be run on this device's data"
SUPERSEDED = "another model has come into use since the comparison"


@dataclass(frozen=True)
class Delivered:
    """The note of the delivered model, with the verdict on it, and the size of its file."""

    model: ServedModel
    verdict: DeliveryVerdict
    bytes: int


def put_delivered_in_use(place: TaskContext, model: ServedModel, terms: TrialTerms | None) -> Delivered:
    """Use the waiting model that this note is of, unless by these terms it is worse than the one in use.

    Without terms nothing is compared. A model that is in use already stays as it is, in whichever form: done
    again after a crash, a delivery comes to the same. Where only signed models are served, one that is good
    enough goes on waiting. Raises what `placement.put_in_use` raises.
    """
    now, size = (
        installed_model.slots(place.models).current(),
        installed_model.waiting(place.models).stat().st_size,
    )
    if now is not None and now.model.exported == model.exported:
        installed_model.drop(place.models)
        verdict = now.model.verdict or DeliveryVerdict(served=True, why=AGAIN)
        return Delivered(now.model, verdict, now.path.stat().st_size)
    verdict = _verdict(place, now, terms)
    if verdict.served:
        verdict = _use(place, model, verdict, instead_of=None if now is None or terms is None else now)
    if not verdict.served:
        installed_model.drop(place.models)
    _tell(model, verdict)
    return Delivered(model, verdict, size)


def _verdict(place: TaskContext, now: Served | None, terms: TrialTerms | None) -> DeliveryVerdict:
    if now is None:
        return DeliveryVerdict(served=True, why=FIRST)
    if terms is None:
        return DeliveryVerdict(served=True, why=FORCED, earlier=now.model.version)
    found = _compare(place, now, terms)
    return judged(found, judge_comparison(found, terms), earlier=now.model.version, data=place.data)


def _compare(place: TaskContext, now: Served, terms: TrialTerms) -> Comparison:
    """The model in use beside the waiting one, on the same examples, in a process of its own."""
    candidate = installed_model.waiting(place.models)
    measuring = ComparisonRunner(place.data, candidate.with_name("examples.npz"))
    try:
        return measuring.compare(ModelPair(now.path, candidate), terms.examples)
    finally:
        measuring.forget()


def judged(
    found: Comparison, objection: Objection | None, *, earlier: str, data: LocalData
) -> DeliveryVerdict:
    """What was found, and what speaks against the new model, as what is said of it."""
    new, old = found.candidate, found.running
    why = _comparison_text(found) if objection is None else f"{objection[0]}: {objection[1]}"
    seen = new is not None and len(data.held_out) == 0
    return DeliveryVerdict(
        served=objection is None,
        why=f"{why}{', of its training data: none is held out' if seen else ''}"[:500],
        earlier=earlier,
        accuracy=None if new is None else new.accuracy,
        earlier_accuracy=None if old is None else old.accuracy,
        examples=0 if new is None else new.examples,
    )


def _comparison_text(found: Comparison) -> str:
    new, old = found.candidate, found.running
    if new is None or old is None or new.accuracy is None or old.accuracy is None:
        return UNUSABLE
    return f"{new.accuracy:.1%} of {new.examples} examples, {old.accuracy:.1%} before"


def _use(
    place: TaskContext, model: ServedModel, verdict: DeliveryVerdict, *, instead_of: Served | None
) -> DeliveryVerdict:
    """Use the waiting model, or let it wait for its signature; returns what that came to."""
    compared_with = None if instead_of is None else instead_of.model.digest
    installed_model.note(
        place.models, model.model_copy(update={"verdict": verdict, "instead_of": compared_with})
    )
    if place.signed_only:
        return verdict
    try:
        installed_model.put_in_use(place.models)
    except installed_model.Superseded:
        return verdict.model_copy(update={"served": False, "why": SUPERSEDED})
    return verdict


def _tell(model: ServedModel, verdict: DeliveryVerdict) -> None:
    if verdict.served:
        log.info("%s is the model to serve: %s", model.version, verdict.why)
    else:
        log.warning("%s is not served, %s is kept: %s", model.version, verdict.earlier, verdict.why)
