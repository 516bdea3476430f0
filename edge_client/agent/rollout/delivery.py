"""The trial of a delivered model: compared with the one in use on the device's data, as in a rollout."""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from edge_client.agent.offers.trial import Objection
from edge_client.agent.rollout import trial
from edge_client.agent.settings import TaskContext
from edge_client.data.local import LocalData
from edge_client.inference import installed_model
from edge_client.inference.model_slots import Served, ServedModel
from edge_client.inference.providers.trial import Use, settle_provider
from schemas.messages.rollout import TrialTerms
from schemas.values import DeliveryVerdict

if TYPE_CHECKING:
    from edge_client.data.dataset import LabelledData

log = logging.getLogger(__name__)

FIRST = "no model was in use before"
AGAIN = "it is in use already"
FORCED = "not compared with the model in use before: the federation delivers by force"
UNUSABLE = "the model in use before cannot be run on this device's data"
SUPERSEDED = "another model has come into use since the comparison"


@dataclass(frozen=True)
class Delivered:
    """The delivered model, the verdict on it, and the size of its file."""

    model: ServedModel
    verdict: DeliveryVerdict
    bytes: int


def put_delivered_in_use(
    context: TaskContext,
    model: ServedModel,
    terms: TrialTerms | None,
    held_out: "LabelledData | None" = None,
) -> Delivered:
    """Use the waiting model unless, by these terms, it is worse than the one in use.

    Without terms nothing is compared. A model that is already in use, in any variant, stays in use, so that a
    delivery may be repeated after a crash. On a device that serves only signed models, a good model waits for
    its signature. What runs it is tried on the `held_out` examples. Raises what `installed_model.put_in_use`
    raises.
    """
    now = installed_model.slots(context.models).current()
    size = installed_model.waiting(context.models).stat().st_size
    if now is not None and now.model.exported_digest == model.exported_digest:
        installed_model.drop(context.models)
        verdict = now.model.verdict or DeliveryVerdict(served=True, why=AGAIN)
        return Delivered(now.model, verdict, now.path.stat().st_size)
    verdict = _verdict(context, now, terms)
    if verdict.served:
        path = installed_model.waiting(context.models)
        settle_provider(path, model.digest, context.providers, Use(examples=held_out))
        verdict = _use(context, model, verdict, instead_of=None if now is None or terms is None else now)
    if not verdict.served:
        installed_model.drop(context.models)
    _log(model, verdict)
    return Delivered(model, verdict, size)


def _verdict(context: TaskContext, now: Served | None, terms: TrialTerms | None) -> DeliveryVerdict:
    if now is None:
        return DeliveryVerdict(served=True, why=FIRST)
    if terms is None:
        return DeliveryVerdict(served=True, why=FORCED, earlier=now.model.version)
    found = _compare(context, now, terms)
    return make_verdict(
        found, trial.judge_comparison(found, terms), earlier=now.model.version, data=context.data
    )


def _compare(context: TaskContext, now: Served, terms: TrialTerms) -> trial.Comparison:
    """Compare the model in use with the waiting one on the same examples."""
    candidate = installed_model.waiting(context.models)
    comparisons = trial.ComparisonRunner(lambda: context.data, candidate.with_name("examples.npz"))
    try:
        return comparisons.compare(trial.ModelPair(now.path, candidate), terms.examples)
    finally:
        comparisons.forget()


def make_verdict(
    found: trial.Comparison, objection: Objection | None, *, earlier: str, data: LocalData
) -> DeliveryVerdict:
    """The verdict that follows from a comparison and the objection to the new model."""
    new, old = found.candidate, found.running
    if objection is None:
        why = (trial.figures_text(old, new) if old is not None and new is not None else "") or UNUSABLE
    else:
        why = f"{objection[0]}: {objection[1]}"
    seen = new is not None and len(data.held_out) == 0
    return DeliveryVerdict(
        served=objection is None,
        why=f"{why}{', of its training data: none is held out' if seen else ''}"[:500],
        earlier=earlier,
        accuracy=None if new is None else new.accuracy,
        earlier_accuracy=None if old is None else old.accuracy,
        examples=0 if new is None else new.examples,
    )


def _use(
    context: TaskContext, model: ServedModel, verdict: DeliveryVerdict, *, instead_of: Served | None
) -> DeliveryVerdict:
    """Use the waiting model, or let it wait for its signature; returns the final verdict."""
    compared_with = None if instead_of is None else instead_of.model.digest
    installed_model.note(
        context.models, model.model_copy(update={"verdict": verdict, "instead_of": compared_with})
    )
    if context.signed_only:
        return verdict
    try:
        installed_model.put_in_use(context.models)
    except installed_model.Superseded:
        return verdict.model_copy(update={"served": False, "why": SUPERSEDED})
    return verdict


def _log(model: ServedModel, verdict: DeliveryVerdict) -> None:
    if verdict.served:
        log.info("%s is the model to serve: %s", model.version, verdict.why)
    else:
        log.warning("%s is not served, %s is kept: %s", model.version, verdict.earlier, verdict.why)
