"""The state of the last offered release, and the part of it that is kept on disk."""

from dataclasses import dataclass, replace
from typing import Any

from edge_client.agent.offers.progress import OfferState, Progress
from edge_client.agent.session.events import SendMessage
from schemas.messages import ClientOffer, ClientReport
from schemas.messages.client_update import FINAL_STAGES, UpdateCause, UpdateStage


class Update(Progress):
    """An offered release and its stage. A former version ignores newer fields.

    `slot` and `former` are the environments of the release and before it, once it was switched to. `restarts`
    counts processes that have found it fetched but not yet switched to.
    """

    final_stages = FINAL_STAGES

    offer: ClientOffer
    stage: UpdateStage = UpdateStage.OFFERED
    cause: UpdateCause | None = None
    slot: str = ""
    former: str = ""


@dataclass(frozen=True)
class UpdateState(OfferState):
    """The update and its progress. `runs_it`: this process is of the release.

    `watched_s` are the seconds of earlier connections of this process; `since` is when it was last connected
    or cut off, in seconds of the device's clock. `version`: that of this process's package.
    """

    version: str = ""
    update: Update | None = None
    runs_it: bool = False
    watched_s: float = 0.0
    since: float = 0.0

    def with_update(self, update: Update, **more: Any) -> "UpdateState":
        return replace(self, update=update, **more)

    @property
    def on_trial(self) -> bool:
        """Whether this process is the new release, and is not kept yet."""
        return self.update is not None and self.runs_it and not self.update.final

    @property
    def watching(self) -> bool:
        """Whether this process is the new release, and nothing speaks against it yet."""
        update = self.update
        return (
            update is not None
            and self.on_trial
            and update.stage is UpdateStage.SWITCHED
            and not update.going_back
        )


def report(state: UpdateState) -> SendMessage:
    """The report of the update's stage."""
    update = state.update
    assert update is not None
    return SendMessage(
        ClientReport(
            federation=state.federation,
            device=state.device,
            rollout=update.offer.rollout,
            version=update.offer.version,
            stage=update.stage,
            cause=update.cause,
            detail=update.detail[:500],
            running=state.version,
            had_it=update.had_it,
        )
    )
