"""The trial of an offered model: what is saved of it, and how it is judged and watched.

    offered -> fetched -> compared -> switched -> (watched) -> kept

The model is compared with the one in use before the switch, and again while it is watched.
"""

import json
import logging
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import ValidationError

from edge_client.agent.offers import trial as offers
from edge_client.agent.offers.machine import finish, object_to
from edge_client.data.local import LocalData
from edge_client.inference.providers.table import CPU_ALONE, ProviderSettings
from edge_client.inference.quantization.selection import EXPORT_ALONE, VariantSettings
from edge_client.inference.service.health import Health
from edge_client.system.child_process import Commands, how_ended
from schemas import messages, values
from schemas.base import Digest, Frozen
from schemas.messages.rollout import Cause, ModelMeasurement, Stage, TrialTerms

CHANCE = 0.05  # Significance level: a loss that is likelier than this by chance does not count
SLACK_MS = 0.5  # Milliseconds below which differences are noise of the clock
MIN_ERRORS = 3
MIN_REQUESTS = 50  # Minimum requests for a mean latency


@dataclass(frozen=True)
class ServedForm:
    """A variant of the offered file that is served in its place, and its sha256."""

    variant: values.Variant
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
    objection: offers.Objection | None = None


def judge_comparison(found: Comparison, terms: TrialTerms) -> offers.Objection | None:
    """The objection to the candidate, if any."""
    if found.objection is not None:
        return found.objection
    if found.candidate is None or found.running is None:
        return None
    return _accuracy(found, found.running, found.candidate, terms) or _latency(
        found.running.latency_ms, found.candidate.latency_ms, terms
    )


def judge_service(before: Health | None, after: Health | None, terms: TrialTerms) -> offers.Objection | None:
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
) -> offers.Objection | None:
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


def _latency(old_ms: float, new_ms: float, terms: TrialTerms) -> offers.Objection | None:
    if new_ms <= old_ms * terms.latency_ratio + SLACK_MS:
        return None
    return Cause.LATENCY, f"{new_ms:.3g} ms for one image, {old_ms:.3g} ms before"


LOOKS = 10
SHORTEST_LOOK_S, LONGEST_LOOK_S = 0.5, 60.0
Step = tuple["ModelState", Sequence[offers.Command]]


class ModelTrial(offers.Trial, Frozen):
    """An offered model, its stage and measurements.

    `made`: digest of the `variant` that is served in place of the offered file.
    """

    causes = Cause
    steps: ClassVar = {Stage.FETCHED: Stage.COMPARED}
    counted = frozenset(Stage) - offers.FINAL

    offer: messages.ModelOffer
    stage: Stage = Stage.OFFERED
    cause: Cause | None = None
    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
    variant: values.Variant = "fp32"
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
class ModelState(offers.TrialState):
    """The trial of a model: `look_at` is the time of the next look; from `watch_until` on it is the last.

    Both are in seconds of the device's clock.
    """

    trial: ModelTrial | None = None
    look_at: float = 0.0
    watch_until: float = 0.0

    def make_trial(self, offer: messages.ModelOffer) -> ModelTrial:
        return ModelTrial(offer=offer)

    def report(self) -> messages.ModelReport:
        trial = self._trial
        return messages.ModelReport(**self.about(), running=trial.running, candidate=trial.candidate)

    def judge(self, event: offers.Worked) -> tuple[ModelTrial, offers.Objection | None]:
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
        return replace(self, busy=True), [offers.Work(self._trial.offer, Stage.KEPT)]

    def on_look(self, event: offers.Worked, now: float) -> Step:
        """Keep the model, look again later, or go back; another model in its place ends the trial."""
        trial, terms = self._trial, self._trial.offer.terms
        if event.objection is not None:
            return object_to(self, trial, event.objection)
        look: Look = event.result
        if look.serving != trial.digest:
            superseded = Cause.SUPERSEDED, "another model has taken its place"
            return finish(self.with_trial(trial.with_end(offers.ROLLED_BACK, superseded)))
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


# Compares two models in a separate process.
log = logging.getLogger(__name__)

TIMEOUT_S = 300.0
LONGEST_REASON = 300


@dataclass(frozen=True)
class ModelPair:
    """The model in use, if there is one, and the candidate.

    With `made`, variants of the candidate are tried first, and a better one is written to that path. With
    `recorded`, what runs the candidate is tried, too, and the choice is recorded beside that path.
    """

    running: Path | None
    candidate: Path
    made: Path | None = None
    recorded: Path | None = None


class ComparisonRunner:
    """One comparison at a time, in a process of its own."""

    def __init__(
        self,
        get_data: Callable[[], LocalData],
        examples: Path,
        variants: VariantSettings = EXPORT_ALONE,
        providers: ProviderSettings = CPU_ALONE,
    ) -> None:
        self._get_data, self._examples, self._variants = get_data, examples, variants
        self._providers = providers
        self._commands = Commands()

    def forget(self) -> None:
        self._examples.unlink(missing_ok=True)

    def stop(self) -> None:
        """Kill the process; its result is dropped."""
        self._commands.end()

    def compare(self, pair: ModelPair, most: int) -> Comparison:
        """Compare on at most `most` examples and wait for the result."""
        try:
            # Imported here: importing numpy would delay the start.
            from edge_client.agent.rollout.comparison_process import write_examples

            if not write_examples(self._examples, self._get_data(), most):
                return Comparison(objection=(Cause.INCOMPATIBLE, "there are no examples to compare on"))
            job = {
                "running": None if pair.running is None else str(pair.running),
                "candidate": str(pair.candidate),
                "examples": str(self._examples),
                "made": None if pair.made is None or not self._variants.others else str(pair.made),
                "variants": self._variants.variants,
                "max_loss": self._variants.max_loss,
                "providers": self._providers.names,
                "recorded": None if pair.recorded is None else str(pair.recorded),
            }
            return self._run(json.dumps(job))
        except OSError as error:
            return Comparison(objection=(Cause.NO_SPACE, f"the comparison cannot be made: {error}"))

    def _run(self, job: str) -> Comparison:
        command = [sys.executable, "-m", "edge_client.agent.rollout.comparison_process"]
        try:
            ended = self._commands.run(command, TIMEOUT_S, given=job)
        except subprocess.TimeoutExpired:
            return Comparison(objection=(Cause.LATENCY, f"it was not done within {TIMEOUT_S:.0f} s"))
        if ended.returncode:
            how = f"running it ended with {how_ended(ended, LONGEST_REASON)}"
            return Comparison(objection=(Cause.CRASHES, how))
        return read_comparison(ended.stdout)


def read_comparison(text: str) -> Comparison:
    try:
        found = json.loads(text.strip().splitlines()[-1])
        objection, made = found.get("objection"), found.get("made")
        return Comparison(
            running=_parse_measurement(found.get("running")),
            candidate=_parse_measurement(found.get("candidate")),
            lost=int(found.get("lost", 0)),
            won=int(found.get("won", 0)),
            made=None if made is None else ServedForm(*made),
            objection=None if objection is None else (Cause(objection[0]), str(objection[1])),
        )
    except (ValueError, IndexError, TypeError, AttributeError, ValidationError) as error:
        return Comparison(objection=(Cause.CRASHES, f"running it ended with {error!r}"[:LONGEST_REASON]))


def _parse_measurement(value: Any) -> ModelMeasurement | None:
    return None if value is None else ModelMeasurement.model_validate(value)
