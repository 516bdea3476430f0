"""Offering a finished model to the devices that are to serve it, on the `rollout` topics."""

from typing import ClassVar, Literal

from pydantic import Field

from schemas.messages.message import Message
from schemas.messages.rollout_terms import Cause, ModelMeasurement, Stage, TrialTerms
from schemas.names import Name
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import BlobRef
from schemas.values import Text


class ModelOffer(Message):
    """To a device: fetch the ONNX file of its tier, compare it with the running model, switch, watch it.

    `manifest` is the server's signature for the file. The device requests the blob in chunks. The offer is
    repeated until the device is done, and answered with a `ModelReport` each time.
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
    """To a device: do not serve that version; if it is in use, go back to the previous one."""

    kind: Literal["model-withdrawal"] = "model-withdrawal"
    device: Name
    rollout: Name
    version: Name
    detail: Text = ""


class ModelReport(Message):
    """A device's stage with the offered model, and the `cause` of a refusal or a rollback.

    `running` and `candidate` are its measurements of the model in use and of the offered one.
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
