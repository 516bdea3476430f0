"""One device's work in one round: the task, the reply, the result, and what the server says to that."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from schemas.base import Frozen
from schemas.messages.message import MAX_MESSAGE_BYTES, Message
from schemas.messages.object_store import Addresses, ObjectStoreTerms
from schemas.messages.rollout_terms import TrialTerms
from schemas.names import Digest, Name
from schemas.security.manifest import SignedManifest
from schemas.security.secure_aggregation import MaskingTerms
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.tensors.chunks import MAX_BLOB_BYTES, BlobRef
from schemas.topics import MAX_SHARED_TOPIC
from schemas.values import (
    Attempt,
    Bytes,
    DeliveryMetrics,
    Instance,
    ModelSpec,
    PersonalPruning,
    Preprocessing,
    Reason,
    RoundNumber,
    Seconds,
    Text,
    TrainingMetrics,
)

MAX_FRAMES = 50
"""A whole model and what changes in it: in five tiers no more layers than a device listens for at once."""


class Increment(Frozen):
    """One part of the state that a task starts from, as the blob of that name.

    One that is packed comes to `unpacked` bytes. The layers of `frame` 0 are a whole model, those of every
    later frame what changes in it.
    """

    blob: Text
    frame: int = Field(default=0, ge=0, lt=MAX_FRAMES)
    unpacked: int | None = Field(default=None, ge=1, le=MAX_BLOB_BYTES)


class Task(Message):
    """One device's work in one round. `blobs` names what it must hold: `channel-map` and those of `layers`.

    A delivery may bring a `graph`, the network as an ONNX model whose weights are inputs. Its model is served
    if, by the terms of the `trial`, it is not worse than the one in use; without a trial in any case.
    The layers, frame by frame and smallest sub-model first, add up to the state; without any, `state` is all
    of it. `channels` says of some blobs on which shared topic they are published; all others are the device's
    to ask for.
    `train` answers with an `Update`, `deliver` (the compact model for good) with a `Delivery`. Where
    `returned` is there, the update holds the parameters of those layers only; where `masking` is, it is sent
    masked, in the group `masked`. `uplink` are the codecs that make it small. `manifest` is the server's
    signature over all of it and the device that it is for. Where there is a `depot`, blobs lie there too, at
    the `addresses`; chunks are always to be had.
    """

    kind: Literal["task"] = "task"
    run: Name
    round: RoundNumber
    attempt: Attempt
    action: Literal["train", "deliver"] = "train"
    tier: int = Field(ge=1)
    ratio: float = Field(ge=0, lt=1)
    model: ModelSpec
    preprocessing: Preprocessing = Preprocessing.model_construct()
    spec: SubModelSpec = SubModelSpec.model_construct()
    personal: PersonalPruning | None = None
    returned: tuple[Text, ...] | None = None
    masking: MaskingTerms | None = None
    depot: ObjectStoreTerms | None = None
    addresses: Addresses | None = None
    uplink: tuple[Component, ...] = ()
    training: TrainingPlan | None = None
    blobs: Mapping[str, BlobRef]
    layers: tuple[Increment, ...] = ()
    channels: Mapping[str, Annotated[int, Field(ge=0, le=MAX_SHARED_TOPIC)]] = {}
    deadline_s: Seconds | None = None
    trial: TrialTerms | None = None
    provenance: Mapping[str, Text] = {}
    manifest: SignedManifest | None = None
    max_bytes: ClassVar[int] = MAX_MESSAGE_BYTES

    @model_validator(mode="after")
    def _blobs_are_named(self) -> Task:
        named = {*self.channels, *(layer.blob for layer in self.layers)}
        if strangers := sorted(named - self.blobs.keys()):
            raise ValueError(f"there is no blob {strangers[0]!r}")
        return self

    @model_validator(mode="after")
    def _frames_follow_each_other(self) -> Task:
        frames = [0, *(layer.frame for layer in self.layers)]
        if any(after - before not in (0, 1) for before, after in pairwise(frames)):
            raise ValueError("the layers' frames are not in order")
        return self

    def pushed(self) -> tuple[BlobRef, ...]:
        """The blobs that are sent along unasked: small new ones that no other device needs."""
        last = max((layer.frame for layer in self.layers), default=0)
        own = [layer.blob for layer in self.layers if layer.frame == last] or [*self.blobs]
        return tuple(self.blobs[n] for n in own if self.blobs[n].inline and n not in self.channels)


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
