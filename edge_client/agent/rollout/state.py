"""The state of the last offered model's trial, and the part of it that is kept on disk."""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import Field

from edge_client.agent.rollout.events import Command, SendRolloutMessage
from edge_client.transport.chunk_transfer import Receiving
from schemas.base import Frozen
from schemas.messages import ModelOffer, ModelReport
from schemas.messages.rollout_terms import FINAL, Cause, ModelMeasurement, Stage
from schemas.names import Digest
from schemas.values import Variant


class Trial(Frozen):
    """The offer, its stage and measurements: what is saved before it is acted on.

    `made`: digest of the `variant` that is served in place of the offered file. `cause`: why the trial ended.
    `going_back`: a roll-back is pending. `had_it`: the model was already served when it was offered.
    `restarts`: processes that have found the trial unfinished.
    """

    offer: ModelOffer
    stage: Stage = Stage.OFFERED
    cause: Cause | None = None
    detail: str = ""
    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
    variant: Variant = "fp32"
    made: Digest | None = None
    going_back: bool = False
    had_it: bool = False
    restarts: int = Field(default=0, ge=0)

    @property
    def digest(self) -> str:
        """The digest of the file that is served."""
        return self.made or self.offer.blob.digest

    @property
    def final(self) -> bool:
        """Whether nothing remains to be done."""
        return self.stage in FINAL and not self.going_back

    def at(self, stage: Stage, **more: Any) -> "Trial":
        return self.model_copy(update={"stage": stage, **more})


@dataclass(frozen=True)
class TrialState:
    """The trial and its progress. `receiving`: the file's download; `busy`: a comparison or switch runs.

    While the model is watched, `look_at` is the time of the next check; from `watch_until` on it is the last.
    Both are in seconds of the device's clock.
    """

    federation: str
    device: str
    connected: bool = False
    trial: Trial | None = None
    receiving: Receiving | None = None
    busy: bool = False
    look_at: float = 0.0
    watch_until: float = 0.0

    def with_trial(self, trial: Trial, **more: Any) -> "TrialState":
        return replace(self, trial=trial, **more)


Step = tuple[TrialState, list[Command]]


def report(trials: TrialState) -> Command:
    trial = trials.trial
    assert trial is not None
    return SendRolloutMessage(
        ModelReport(
            federation=trials.federation,
            device=trials.device,
            rollout=trial.offer.rollout,
            version=trial.offer.version,
            stage=trial.stage,
            cause=trial.cause,
            detail=trial.detail[:500],
            running=trial.running,
            candidate=trial.candidate,
        )
    )
