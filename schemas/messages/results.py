"""Answers to a task: the reply, the result, and the server's acknowledgement or refusal of the result."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.messages.message import MAX_MESSAGE_BYTES, Message
from schemas.names import Digest, Name
from schemas.security.manifest import SignedManifest
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import (
    Attempt,
    Bytes,
    DeliveryMetrics,
    Instance,
    Reason,
    RoundNumber,
    Text,
    TrainingMetrics,
)


class TaskReply(Message):
    """Accept or decline a task; a task that fails later is declined too, with the reason.

    `listens`: the shared topics on which the device, from now on, hears what it lacks.
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
    """The result of a training task: groups in the coordinates of `spec`, as a blob to be fetched.

    One that is `deposited` lies where the task said; the device has it still, in chunks as ever. For the task
    `heard_bytes` have reached the device on topics that it shares with others, as far as it knows, and
    `fetched_bytes` from the object store.
    """

    kind: Literal["update"] = "update"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    blob: BlobRef
    spec: SubModelSpec = SubModelSpec.model_construct()
    metrics: TrainingMetrics
    deposited: bool = False
    heard_bytes: Bytes | None = None
    fetched_bytes: Bytes | None = None
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES


class Delivery(Message):
    """The result of a delivery task: the compact model is exported, and served unless the verdict is no.

    `heard_bytes` and `fetched_bytes` are those of an `Update`.
    """

    kind: Literal["delivery"] = "delivery"
    device: Name
    run: Name
    round: RoundNumber
    attempt: Attempt
    metrics: DeliveryMetrics
    heard_bytes: Bytes | None = None
    fetched_bytes: Bytes | None = None


class Acknowledgement(Message):
    """The server holds the result of this task for good; `digest` is that of the update's blob.

    `manifest` is the server's signature for the model that a delivery has reported.
    """

    kind: Literal["acknowledgement"] = "acknowledgement"
    device: Name
    run: Name
    attempt: Attempt
    digest: Digest | None = None
    manifest: SignedManifest | None = None


class Refusal(Message):
    """The server, or a device, will not take what it was sent, and why.

    `run` and `attempt` name the task whose result is refused, `digest` the blob that is meant, `instance` the
    process, where another one has the same name.
    """

    kind: Literal["refusal"] = "refusal"
    device: Name
    run: Name | None = None
    attempt: Attempt | None = None
    digest: Digest | None = None
    reason: Reason
    detail: Text = ""
    instance: Instance = ""
