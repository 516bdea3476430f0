"""The state of the last offered model's trial, and the part of it that is kept on disk."""

from dataclasses import dataclass, replace
from typing import Any

from edge_client.agent.offers.progress import OfferState, Progress
from edge_client.agent.session.events import SendMessage
from schemas.base import Frozen
from schemas.messages import ModelOffer, ModelReport
from schemas.messages.rollout_terms import FINAL, Cause, ModelMeasurement, Stage
from schemas.names import Digest
from schemas.values import Variant


class Trial(Progress, Frozen):
    """An offered model, its stage and measurements.

    `made`: digest of the `variant` that is served in place of the offered file.
    """

    final_stages = FINAL

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
class TrialState(OfferState):
    """The trial and its progress. `busy`: a comparison or switch runs.

    While the model is watched, `look_at` is the time of the next check; from `watch_until` on it is the last.
    Both are in seconds of the device's clock.
    """

    trial: Trial | None = None
    busy: bool = False
    look_at: float = 0.0
    watch_until: float = 0.0

    def with_trial(self, trial: Trial, **more: Any) -> "TrialState":
        return replace(self, trial=trial, **more)


def report(trials: TrialState) -> SendMessage:
    trial = trials.trial
    assert trial is not None
    return SendMessage(
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
