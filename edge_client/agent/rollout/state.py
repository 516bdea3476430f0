"""What a device knows of the model that it was offered last, and what of that outlives its process."""

from __future__ import annotations

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
    """The offer, how far it is, what was measured: all that is kept on disk, before it is acted on.

    `made` is the file of that `variant` that is served in place of the offered one. `cause` says why it ended
    so; with `going_back` it is switched back as soon as can be. `had_it`: the model was served before it was
    offered. `restarts` counts the processes that have found it half done.
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
        """Of the file that is served."""
        return self.made or self.offer.blob.digest

    @property
    def final(self) -> bool:
        """Whether nothing more is to be done."""
        return self.stage in FINAL and not self.going_back

    def at(self, stage: Stage, **more: Any) -> Trial:
        """The trial one stage further."""
        return self.model_copy(update={"stage": stage, **more})


@dataclass(frozen=True)
class TrialState:
    """All of it. `receiving` is the file on its way, `busy` a comparison or a switch that is under way.

    While the model is watched, the next look is at `look_at` and the last one from `watch_until` on, both in
    seconds of the device's clock.
    """

    federation: str
    device: str
    connected: bool = False
    trial: Trial | None = None
    receiving: Receiving | None = None
    busy: bool = False
    look_at: float = 0.0
    watch_until: float = 0.0

    def with_trial(self, trial: Trial, **more: Any) -> TrialState:
        """With this trial's next state."""
        return replace(self, trial=trial, **more)


Step = tuple[TrialState, list[Command]]


def report(trials: TrialState) -> Command:
    """Say where the trial is."""
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
