"""The trial of an offered model: what is saved of it, and how it is judged and watched.

    offered -> fetched -> compared -> switched -> (watched) -> kept

The model is compared with the one in use before the switch, and again while it is watched.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from edge_client.agent.offers.machine import finish, object_to
from edge_client.agent.offers.trial import (
    FINAL,
    ROLLED_BACK,
    Command,
    Objection,
    Trial,
    TrialState,
    Work,
    Worked,
)
from edge_client.agent.rollout.acceptance import Comparison, judge_comparison, judge_service
from edge_client.inference.service.health import Health
from schemas.base import Frozen
from schemas.messages import ModelOffer, ModelReport
from schemas.messages.rollout_terms import Cause, ModelMeasurement, Stage, TrialTerms
from schemas.names import Digest
from schemas.values import Variant

LOOKS = 10
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.5, 60.0
Step = tuple["ModelState", Sequence[Command]]


class ModelTrial(Trial, Frozen):
    """An offered model, its stage and measurements.

    `made`: digest of the `variant` that is served in place of the offered file.
    """

    causes = Cause
    steps: ClassVar = {Stage.FETCHED: Stage.COMPARED}
    counted = frozenset(Stage) - FINAL

    offer: ModelOffer
    stage: Stage = Stage.OFFERED
    cause: Cause | None = None
    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
    variant: Variant = "fp32"
    made: Digest | None = None

    @property
    def digest(self) -> str:
        """The digest of the file that is served."""
        return self.made or self.offer.blob.digest


@dataclass(frozen=True)
class Look:
    """What the watch has seen: the comparison, repeated, and the digest of the model in use.

    `before`, `after`: serving health of the former model and of this one.
    """

    comparison: Comparison
    serving: str | None
    before: Health | None = None
    after: Health | None = None


@dataclass(frozen=True)
class ModelState(TrialState):
    """The trial of a model: `look_at` is the time of the next look; from `watch_until` on it is the last.

    Both are in seconds of the device's clock.
    """

    trial: ModelTrial | None = None
    look_at: float = 0.0
    watch_until: float = 0.0

    def make_trial(self, offer: ModelOffer) -> ModelTrial:
        return ModelTrial(offer=offer)

    def report(self) -> ModelReport:
        trial = self._trial
        return ModelReport(**self.about(), running=trial.running, candidate=trial.candidate)

    def judge(self, event: Worked) -> tuple[ModelTrial, Objection | None]:
        """The trial with the measurements and the variant to serve, and the objection to the model."""
        trial = self._trial
        if event.objection is not None:
            return trial, event.objection
        comparison: Comparison = event.result
        measured = {"running": comparison.running, "candidate": comparison.candidate}
        made = comparison.made
        served = {} if made is None else {"variant": made.variant, "made": made.digest}
        objection = judge_comparison(comparison, trial.offer.terms)
        return trial.model_copy(update={**measured, **served}), objection

    def watch(self, now: float) -> Step:
        terms = self._trial.offer.terms
        return replace(self, look_at=now + _interval(terms), watch_until=now + terms.watch_s), []

    def resume_watch(self, now: float) -> Step:
        """The watch starts over."""
        return self.watch(now)

    def look(self, now: float) -> Step:
        if now < self.look_at:
            return self, []
        return replace(self, busy=True), [Work(self._trial.offer, Stage.KEPT)]

    def on_look(self, event: Worked, now: float) -> Step:
        """Keep the model, look again later, or go back; another model in its place ends the trial."""
        trial, terms = self._trial, self._trial.offer.terms
        if event.objection is not None:
            return object_to(self, trial, event.objection)
        look: Look = event.result
        if look.serving != trial.digest:
            superseded = Cause.SUPERSEDED, "another model has taken its place"
            return finish(self.with_trial(trial.with_end(ROLLED_BACK, superseded)))
        objection = judge_service(look.before, look.after, terms) or judge_comparison(look.comparison, terms)
        if objection is not None:
            return object_to(self, trial, objection)
        if now < self.watch_until:
            return replace(self, look_at=min(now + _interval(terms), self.watch_until)), []
        return finish(self.with_trial(trial.at(Stage.KEPT)))

    @property
    def _trial(self) -> ModelTrial:
        assert self.trial is not None
        return self.trial


def _interval(terms: TrialTerms) -> float:
    return min(max(terms.watch_s / LOOKS, SHORTEST_LOOK_S), LONGEST_LOOK_S)
