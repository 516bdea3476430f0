"""A finished model on its way to the devices that shall serve it, on topics of their own: `rollout`."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.message import Message
from schemas.messages.rollout_terms import Cause, ModelMeasurement, Stage, TrialTerms
from schemas.names import Name
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import BlobRef
from schemas.values import Text


class ModelOffer(Message):
    """To a device: fetch this ONNX file of its own tier, compare it with what it runs, switch, watch it.

    `manifest` is the server's signature for the file. The device asks for the blob in chunks. The same offer
    comes again until the device is done, and is answered each time with a `ModelReport`.
    """

    kind: Literal["model-offer"] = "model-offer"
    device: Name
    rollout: Name
    version: Name
    tier: int = Field(ge=1)
    blob: BlobRef
    manifest: SignedManifest | None = None
    terms: TrialTerms = TrialTerms.model_construct()
    max_bytes: ClassVar[int] = 8 * 1024


class ModelWithdrawal(Message):
    """To a device: that version is not to be served; whoever has switched to it goes back."""

    kind: Literal["model-withdrawal"] = "model-withdrawal"
    device: Name
    rollout: Name
    version: Name
    detail: Text = ""


class ModelReport(Message):
    """Where a device is with the model that it was offered; `cause` says why it ended so.

    `running` is what it measured of the model that it had, `candidate` of the offered one, side by side.
    """

    kind: Literal["model-report"] = "model-report"
    device: Name
    rollout: Name
    version: Name
    stage: Stage
    cause: Cause | None = None
    detail: Text = ""
    running: ModelMeasurement | None = None
    candidate: ModelMeasurement | None = None
