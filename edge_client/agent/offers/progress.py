"""How far an offer has come: the part that is kept on disk, and the part that is not."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field

from edge_client.transport.chunk_transfer import Receiving
from schemas.messages import ClientOffer, ModelOffer
from schemas.tensors.chunks import Chunk


class Progress(BaseModel):
    """The offer and its stage: what is saved before it is acted on.

    `cause`: why it ended. `going_back`: the return to the former version is pending. `had_it`: the offered
    version was already in use. `restarts`: processes that have found the offer unfinished.
    """

    model_config = ConfigDict(frozen=True)
    final_stages: ClassVar[frozenset[Any]]

    offer: ModelOffer | ClientOffer
    stage: StrEnum
    cause: StrEnum | None = None
    detail: str = ""
    going_back: bool = False
    had_it: bool = False
    restarts: int = Field(default=0, ge=0)

    @property
    def final(self) -> bool:
        """Whether nothing remains to be done."""
        return self.stage in self.final_stages and not self.going_back

    def at(self, stage: StrEnum, **more: Any) -> Self:
        """The same offer at another stage."""
        return self.model_copy(update={"stage": stage, **more})

    def stage_text(self) -> str:
        """The stage in words, with the cause of a refusal or return."""
        return str(self.stage) if self.cause is None else f"{self.stage} ({self.cause}) {self.detail}"

    def restarted(self) -> Self:
        """The same offer, which one more process has found unfinished."""
        return self.model_copy(update={"restarts": self.restarts + 1})

    def returning(self, cause: StrEnum, detail: str) -> Self:
        """The same offer with the return to the former version pending."""
        return self.model_copy(update={"cause": cause, "detail": detail, "going_back": True})


@dataclass(frozen=True)
class OfferState:
    """The device, its connection, and the download of the offered file while it lasts."""

    federation: str
    device: str
    connected: bool = False
    receiving: Receiving | None = None

    def expects(self, chunk: Chunk) -> bool:
        """Whether the chunk belongs to the offered file."""
        return self.receiving is not None and self.receiving.ref.digest.startswith(chunk.prefix)
