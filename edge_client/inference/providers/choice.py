"""Chooses the provider of a served model from the trials of all, with the reason for each refusal. Pure."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from pydantic import Field

from schemas.base import Digest, Frozen
from schemas.values import Count, Text

MAX_DIFFERENCE = 1e-3
"""Largest difference from the CPU's outputs, relative to the largest of them. 32 bits differ by 2e-6 at most
(OpenVINO, eight networks), bfloat16 by 4e-3."""
MAX_POINTS = 0.1  # points of the leading metric lost on held-out examples, below which it is the same
MARGIN = 1.2  # how many times as fast as the CPU, for the memory and the longer start that a provider takes
MIN_GAIN_MS = 0.1  # milliseconds saved per run, below which a faster answer is not noticed
MIN_COSINE, MAX_LOSS_DIFFERENCE, MAX_STEP_DIFFERENCE = 0.999, 0.01, 0.045
"""Of training steps: the cosine of gradients, the difference of losses relative to the loss, and the distance
of gradients and of running statistics relative to their length, which that cosine makes at equal lengths.
resnet20 in batches of 16 has 0.02 in 32 bits (OpenVINO), since batch normalisation enlarges rounding."""
MEMORY_SHARE = 0.5  # of the free memory that it may take
SPARE_S, SLACK = 10.0, 3.0  # of a run's deadline: seconds, and how many times the trial's own

Milliseconds = Annotated[float, Field(ge=0, le=1e9)]


class ProviderTrial(Frozen):
    """What the trial of a provider measured, on a model or a training step; `failure`: why nothing.

    `difference` of its outputs from the CPU's, relative to the largest of those; `points` of the leading
    metric lost on `examples` held-out examples, without which `probes` random inputs were compared alone.
    Milliseconds per run, of the CPU in turns with it. `load_s` and `warm_up_ms` of the first run include what
    it builds, and `memory_bytes` is what it takes besides the CPU's session. Of so many training `steps`,
    `cosine` is the smallest of its gradients with the CPU's, `loss_difference` the largest relative to the
    loss, and `difference` the distance of gradients relative to their length. `refusal`: why it does not run.
    """

    provider: Text
    failure: Text = ""
    difference: Annotated[float, Field(ge=0)] = 0.0
    points: float = 0.0
    examples: Count = 0
    probes: Count = 0
    steps: Count = 0
    cosine: Annotated[float, Field(ge=-1.001, le=1.001)] = 1.0
    loss_difference: Annotated[float, Field(ge=0)] = 0.0
    ms: Milliseconds = 0.0
    cpu_ms: Milliseconds = 0.0
    load_s: Annotated[float, Field(ge=0, le=1e9)] = 0.0
    warm_up_ms: Milliseconds = 0.0
    memory_bytes: Count = 0
    refusal: Text = ""

    @property
    def speed_up(self) -> float:
        """How many times as fast as the CPU."""
        return self.cpu_ms / self.ms if self.ms else 0.0


class ProviderChoice(Frozen):
    """The provider that runs a model, and why: of the file with that digest, in these circumstances.

    `threads` of a run, 0 for the runtime's own number, and the examples of a `batch`. `asked`: what the user
    asked for. `circumstances`: onnxruntime's version, its providers, their drivers and the power mode.
    """

    digest: Digest
    threads: Count
    batch: Count
    asked: tuple[Text, ...]
    circumstances: Mapping[str, Text]
    provider: Text
    why: Text
    trials: tuple[ProviderTrial, ...] = ()

    def is_for(self, other: "ProviderChoice") -> bool:
        """Whether it is for the same file, use and circumstances."""
        ours, theirs = (
            (choice.digest, choice.threads, choice.batch, choice.asked, dict(choice.circumstances))
            for choice in (self, other)
        )
        return ours == theirs

    def deadline_s(self, examples: int) -> float:
        """Seconds after which a run of so many examples has failed: it may build as much as in its trial."""
        trial = next(trial for trial in self.trials if trial.provider == self.provider)
        run_ms = max(trial.ms, trial.cpu_ms) * examples / self.batch
        return SPARE_S + SLACK * (trial.load_s + (trial.warm_up_ms + run_ms) / 1e3)

    def with_failure(self, reason: str) -> "ProviderChoice":
        """The choice of the CPU, after the chosen provider has failed at a request."""
        why = f"{self.provider} failed in use: {reason}"[:500]
        trials = tuple(
            trial.model_copy(update={"refusal": why}) if trial.provider == self.provider else trial
            for trial in self.trials
        )
        return self.model_copy(update={"provider": "cpu", "why": why, "trials": trials})


def choose_provider(
    trials: Sequence[ProviderTrial], *, is_stated: bool = False, free_bytes: int | None = None
) -> tuple[str, str, tuple[ProviderTrial, ...]]:
    """The provider, why, and the trials with the reason for each refusal.

    The fastest that is right and faster than the CPU by a margin; of those that the user has stated the first
    that is right, however fast.
    """
    judged = tuple(
        trial.model_copy(update={"refusal": object_to(trial, is_stated, free_bytes)[:500]})
        for trial in trials
    )
    fitting = [trial for trial in judged if not trial.refusal]
    refused = [f"{trial.provider} {trial.refusal}" for trial in judged if trial.refusal]
    if not fitting:
        return "cpu", "; ".join(refused)[:500] or "no other provider is there", judged
    best = fitting[0] if is_stated else max(fitting, key=lambda trial: trial.speed_up)
    slower = [f"{t.provider} {t.speed_up:.2f} x" for t in fitting if t is not best]
    why = "; ".join([f"{best.provider} {_describe_speed(best)}", *slower, *refused])
    return best.provider, why[:500], judged


def object_to(trial: ProviderTrial, is_stated: bool, free_bytes: int | None) -> str:
    """Why the provider does not run the model; empty if it may."""
    if trial.failure:
        return trial.failure
    if trial.steps and (trial.cosine < MIN_COSINE or trial.difference > MAX_STEP_DIFFERENCE):
        text = f"gives other gradients: cosine {trial.cosine:.4f}, at a distance of {trial.difference:.2g}"
        return f"{text}, at least {MIN_COSINE:g} and at most {MAX_STEP_DIFFERENCE:g} allowed"
    if trial.loss_difference > MAX_LOSS_DIFFERENCE:
        return f"gives other losses: {trial.loss_difference:.2g}, at most {MAX_LOSS_DIFFERENCE:g} allowed"
    if not trial.steps and trial.difference > MAX_DIFFERENCE:
        text = f"gives other answers: {trial.difference:.2g} of the largest"
        return f"{text}, at most {MAX_DIFFERENCE:g} allowed"
    if trial.points >= MAX_POINTS:
        text = f"loses {trial.points:.2f} points on {trial.examples} examples"
        return f"{text}, less than {MAX_POINTS:g} allowed"
    if free_bytes is not None and trial.memory_bytes > MEMORY_SHARE * free_bytes:
        return f"takes {trial.memory_bytes / 1e6:.0f} MB of {free_bytes / 1e6:.0f} MB free"
    if is_stated or (trial.speed_up >= MARGIN and trial.cpu_ms - trial.ms >= MIN_GAIN_MS):
        return ""
    return f"is {_describe_speed(trial)}, at least {MARGIN:g} x and {MIN_GAIN_MS:g} ms less wanted"


def _describe_speed(trial: ProviderTrial) -> str:
    return f"{trial.speed_up:.2f} x as fast as the CPU ({trial.ms:.3f} ms, {trial.cpu_ms:.3f} ms)"
