"""Answers to a task: the reply, the result, and the server's acknowledgement or refusal of the result."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Digest, Frozen, Name
from schemas.errors import PeerError, Reason
from schemas.messages.message import MAX_MESSAGE_BYTES, ServedMessage, TaskMessage
from schemas.security.manifest import SignedManifest
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import Attempt, Bytes, DeliveryMetrics, DriftFinding, Instance, Text, TrainingMetrics

MAX_NORMS = 512  # most norms in a receipt: two for each kind of array


class TaskReply(TaskMessage):
    """Accepts or declines a task; a task that fails later is declined with the reason.

    `listens` are the shared topics that the device has subscribed to.
    """

    kind: Literal["task-reply"] = "task-reply"
    accepted: bool
    reason: Reason | None = None
    detail: Text = ""
    listens: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=256)] = ()


class SiteReceipt(Frozen):
    """A gateway's word that the bytes of an update lie at its `site`, and what it has found in them.

    `norms` are those of the update's groups; a `moved` update has a number other than 0. `parameters` are the
    names of those that were sent, None if all were. `groups` is a blob with the groups besides the model, and
    the model's running variances; None without any. With a `reason` the site refuses the update.
    """

    site: Name
    norms: Annotated[Mapping[Text, Annotated[float, Field(ge=0, le=1e30)]], Field(max_length=MAX_NORMS)] = {}
    moved: bool = False
    parameters: Annotated[tuple[Text, ...] | None, Field(exclude_if=lambda names: names is None)] = None
    groups: Annotated[BlobRef | None, Field(exclude_if=lambda blob: blob is None)] = None
    reason: Annotated[Reason | None, Field(exclude_if=lambda reason: reason is None)] = None
    detail: Annotated[Text, Field(exclude_if=lambda detail: not detail)] = ""


class Update(TaskMessage):
    """The result of a `TrainTask`: parameter groups in the coordinates of `spec`, as a blob.

    A `deposited` blob is in the object store, at the address that the task gave; the device still sends it in
    chunks on request. `heard_bytes` were received on shared topics, `fetched_bytes` from the object store.
    `drift` is the alarm about the device's data that stands after the training. A `receipt` is added by the
    gateway of the device's site.
    """

    kind: Literal["update"] = "update"
    blob: BlobRef
    spec: SubModelSpec = SubModelSpec.model_construct()
    metrics: TrainingMetrics
    drift: DriftFinding | None = Field(default=None, exclude_if=lambda found: found is None)
    deposited: bool = False
    heard_bytes: Bytes | None = None
    fetched_bytes: Bytes | None = None
    receipt: SiteReceipt | None = Field(default=None, exclude_if=lambda receipt: receipt is None)
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES

    @property
    def sent_blob(self) -> BlobRef | None:
        """The blob that the server gets: of an update that lies at a site its other groups, if any."""
        return self.blob if self.receipt is None else self.receipt.groups


class Delivery(TaskMessage):
    """The result of a `DeliverTask`: the model is exported, and served unless the verdict says otherwise.

    `heard_bytes` and `fetched_bytes` are as in `Update`.
    """

    kind: Literal["delivery"] = "delivery"
    metrics: DeliveryMetrics
    heard_bytes: Bytes | None = None
    fetched_bytes: Bytes | None = None


class Acknowledgement(ServedMessage):
    """The server has stored the result of this task; `digest` is that of the update's blob.

    `manifest` is the server's signature for the delivered model.
    """

    kind: Literal["acknowledgement"] = "acknowledgement"
    device: Name
    run: Name
    attempt: Attempt
    digest: Digest | None = None
    manifest: SignedManifest | None = None


class Refusal(ServedMessage):
    """The server or a device refuses what it was sent.

    `run` and `attempt` name the task whose result is refused, `digest` the blob, `instance` the process if
    several use the same name.
    """

    kind: Literal["refusal"] = "refusal"
    device: Name
    run: Name | None = None
    attempt: Attempt | None = None
    digest: Digest | None = None
    reason: Reason
    detail: Text = ""
    instance: Instance = ""

    @classmethod
    def of(cls, error: PeerError, federation: str, device: str) -> "Refusal":
        """The refusal of what has caused this error."""
        return cls(federation=federation, device=device, reason=Reason(error.reason), detail=str(error)[:500])
