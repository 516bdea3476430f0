"""Answers to a task: the reply, the result, and the server's acknowledgement or refusal of the result."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.message import MAX_MESSAGE_BYTES, Message, ServedMessage
from schemas.names import Digest, Name
from schemas.security.manifest import SignedManifest
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import (
    Attempt,
    Bytes,
    DeliveryMetrics,
    DriftFinding,
    Instance,
    Reason,
    RoundNumber,
    Text,
    TrainingMetrics,
)


class TaskReply(Message):
    """Accepts or declines a task; a task that fails later is declined with the reason.

    `listens` are the shared topics that the device has subscribed to.
    """

    kind: Literal["task-reply"] = "task-reply"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    accepted: bool
    reason: Reason | None = None
    detail: Text = ""
    listens: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=256)] = ()


class Update(Message):
    """The result of a `TrainTask`: parameter groups in the coordinates of `spec`, as a blob.

    A `deposited` blob is in the object store, at the address that the task gave; the device still sends it in
    chunks on request. `heard_bytes` were received on shared topics, `fetched_bytes` from the object store.
    `drift` is the alarm about the device's data that stands after the training.
    """

    kind: Literal["update"] = "update"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    blob: BlobRef
    spec: SubModelSpec = SubModelSpec.model_construct()
    metrics: TrainingMetrics
    drift: DriftFinding | None = Field(default=None, exclude_if=lambda found: found is None)
    deposited: bool = False
    heard_bytes: Bytes | None = None
    fetched_bytes: Bytes | None = None
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class Delivery(Message):
    """The result of a `DeliverTask`: the model is exported, and served unless the verdict says otherwise.

    `heard_bytes` and `fetched_bytes` are as in `Update`.
    """

    kind: Literal["delivery"] = "delivery"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
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
