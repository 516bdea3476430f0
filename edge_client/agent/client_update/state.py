"""The state of the last offered release, and the part of it that is kept on disk."""

from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from edge_client.agent.client_update.events import Command, SendUpdateMessage
from edge_client.transport.chunk_transfer import Receiving
from schemas.messages import ClientOffer, ClientReport
from schemas.messages.client_update import FINAL_STAGES, UpdateCause, UpdateStage


class Update(BaseModel):
    """The offer and its stage: what is saved before it is acted on. A former version ignores newer fields.

    `slot` and `former` are the environments of the release and before it, once it was switched to. `cause`:
    why it ended. `going_back`: the return is pending. `had_it`: the release ran already when it was offered.
    `restarts`: processes that have found it fetched but not yet switched to.
    """

    model_config = ConfigDict(frozen=True)

    offer: ClientOffer
    stage: UpdateStage = UpdateStage.OFFERED
    cause: UpdateCause | None = None
    detail: str = ""
    slot: str = ""
    former: str = ""
    going_back: bool = False
    had_it: bool = False
    restarts: int = Field(default=0, ge=0)

    @property
    def final(self) -> bool:
        """Whether nothing remains to be done."""
        return self.stage in FINAL_STAGES and not self.going_back

    def at(self, stage: UpdateStage, **more: Any) -> "Update":
        """The update at another stage."""
        return self.model_copy(update={"stage": stage, **more})


@dataclass(frozen=True)
class UpdateState:
    """The update and its progress. `receiving`: the archive's download; `runs_it`: this process is of it.

    `watched_s` are the seconds of earlier connections of this process; `since` is when it was last connected
    or cut off, in seconds of the device's clock. `version`: that of this process's package.
    """

    federation: str
    device: str
    version: str = ""
    connected: bool = False
    update: Update | None = None
    receiving: Receiving | None = None
    runs_it: bool = False
    watched_s: float = 0.0
    since: float = 0.0

    def with_update(self, update: Update, **more: Any) -> "UpdateState":
        """The state with this update."""
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


Step = tuple[UpdateState, list[Command]]


def report(state: UpdateState) -> Command:
    """The report of the update's stage."""
    update = state.update
    assert update is not None
    return SendUpdateMessage(
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
