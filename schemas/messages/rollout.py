"""Offering a finished model to the devices that are to serve it, on the `rollout` topics.

The terms of its trial on a device, its measurements, stages and causes of failure.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Frozen, Name
from schemas.messages.message import Message
from schemas.security.manifest import SignedManifest
from schemas.tensors.chunks import BlobRef
from schemas.values import Count, Fraction, Metrics, Seconds, Text

Milliseconds = Annotated[float, Field(ge=0, le=1e9)]


class Stage(StrEnum):
    """A device's progress with the offered model. The last three stages are final."""

    OFFERED = "offered"
    FETCHED = "fetched"
    COMPARED = "compared"
    SWITCHED = "switched"
    KEPT = "kept"
    REFUSED = "refused"
    ROLLED_BACK = "rolled-back"


FINAL = frozenset({Stage.KEPT, Stage.REFUSED, Stage.ROLLED_BACK})


class Cause(StrEnum):
    """Why a device refuses a model or rolls it back: stable codes."""

    ACCURACY = "accuracy"
    LATENCY = "latency"
    CRASHES = "crashes"
    ERRORS = "errors"
    UNTRUSTED = "untrusted"
    DAMAGED = "damaged"
    INCOMPATIBLE = "incompatible"
    NO_SPACE = "no-space"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"


class TrialTerms(Frozen):
    """Limits for an offered model, relative to the model in use.

    - `examples`: most of the device's own examples that both models are run on;
    - `accuracy_drop`: share of them on which the new model may be worse beyond those on which it is better:
      a wrong answer for a right one, or an error that is larger by a twentieth;
    - `latency_ratio`: greatest ratio of its time for one image to the old model's;
    - `error_rate`: share of requests that may fail beyond the old model's, while it is watched;
    - `crashes`: most crashes of the serving process while it is watched;
    - `watch_s`: seconds after the switch until the model is kept.
    """

    examples: int = Field(default=200, ge=0, le=10_000)
    accuracy_drop: Fraction = 0.02
    latency_ratio: float = Field(default=1.5, ge=1, le=1000)
    error_rate: Fraction = 0.01
    crashes: int = Field(default=0, ge=0, le=1000)
    watch_s: Seconds = 300.0


class ModelMeasurement(Frozen):
    """One model on a device's own examples: their number, its task's figures, milliseconds for one image."""

    examples: Count = 0
    accuracy: Fraction | None = None
    metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    latency_ms: Milliseconds


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
