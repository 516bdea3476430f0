"""One device's work in one round: `TrainTask` and `DeliverTask`, both of the kind `task`."""

from collections.abc import Collection, Mapping
from functools import cache
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, TypeAdapter, model_validator

from schemas import submodel, topics, values
from schemas.base import Frozen, Name
from schemas.messages import message, rollout
from schemas.messages.blobs import Addresses, ObjectStoreTerms
from schemas.security.manifest import SignedManifest
from schemas.security.secure_aggregation import MaskingTerms
from schemas.statistics import StatisticsRequest
from schemas.strategy import Adapters, Component, PersonalPruning, TrainingPlan
from schemas.tensors.chunks import MAX_BLOB_BYTES, BlobRef

MAX_FRAMES = 50  # of one task: with five tiers no more increments than a device may subscribe to topics

GRAPH, STEP = "graph", "step"
"""Names of the blobs with a sub-model's inference graph and its step graph; `step-0`, `step-1` and so on are
the step graphs of smaller widths, the smallest first."""
OWN_STEP = f"{STEP}-own"  # blob with the step graph of a device's own model, where it is another
SCORING_STEP = f"{STEP}-scoring"  # blob with the graph that scores channels, to prune before training
FEATURES, REST = "features", "rest"
"""Blobs with the graphs of a frozen part, from inputs to features, and of what follows it, which the step
graph then trains."""
FIXED = "fixed"  # blob, and its only group, with what a network's factory draws besides weights

CHANNEL_MAP = "channel-map"  # name of the blob with the model's channel map, which is JSON
MAX_BLOBS = 320  # blobs of one task: an increment for each topic of a device, and graphs for every width
MAX_CHUNKS = 1 << 20  # chunks of all blobs of a task: 4 GiB in pieces of 4 kB
MAX_TASK_BYTES = 4 * MAX_BLOB_BYTES  # bytes of all blobs of a task, and of what its layers unpack to
MAX_CHANNEL_MAP_BYTES = 8 * 1024**2  # 25 million parameters have 40 kB; in memory twenty times as much
MAX_GRAPH_BYTES = 256 * 1024**2  # weights are inputs: 25 million parameters have less than 1 MB

Ignored = Annotated[None, BeforeValidator(lambda _: None)]  # of the other kind of task: null on the wire


def is_returned(name: str, returned: Collection[str] | None) -> bool:
    """Whether an update of a task with this `returned` holds the parameter."""
    return returned is None or name in returned or name.rpartition(".")[0] in returned


class Increment(Frozen):
    """The blob, by its name in the task, that takes one sub-model of a version to the next larger one.

    `frame` 0 is a whole model; each later frame holds the changes since the frame before. `unpacked` is the
    size in bytes of a compressed blob once decompressed.
    """

    blob: values.Text
    frame: int = Field(default=0, ge=0, lt=MAX_FRAMES)
    unpacked: int | None = Field(default=None, ge=1, le=MAX_BLOB_BYTES)


class TaskBase(message.ServedMessage):
    """The fields of both kinds of task, in the order in which they are written and signed.

    - `blobs` are all blobs that the device needs: `channel-map`, those of `layers`, for an export also
      `graph`, the network as an ONNX model whose weights are inputs. A device without torch gets `graph` for
      a training too, and step graphs (`step`, `step-0` and so on). `fixed` is there for networks with drawn
      state besides their weights.
    - `layers` add up to the state, frame by frame and smallest sub-model first; without them the blob
      `state` is all of it.
    - `channels` are the numbers of the shared topics on which some of the blobs are published; the device
      requests all others.
    - `own` are the layers that stay on the device: what it has trained takes the place of what it receives.
    - `trained` are the names of the arrays that are trained, all if it is None; normalisations keep
      statistics that are not among them. `frozen` are the layers of what no device trains: they are the same
      in every round, and add up like `layers`.
    - `adapters` are those of `trained` whose change has a low rank.
    - `depot` is the object store, whose `addresses` are an alternative to chunks.
    - `manifest` is the server's signature over the task and the device that it is for.
    """

    kind: Literal["task"] = "task"
    run: Name
    round: values.RoundNumber
    attempt: values.Attempt
    action: Literal["train", "deliver"] = "train"
    tier: int = Field(ge=1)
    ratio: float = Field(ge=0, lt=1)
    model: values.ModelSpec
    preprocessing: values.Preprocessing = values.Preprocessing.model_construct()
    spec: submodel.SubModelSpec = submodel.SubModelSpec.model_construct()
    personal: PersonalPruning | None = None
    returned: tuple[values.Text, ...] | None = None
    own: Annotated[tuple[values.Text, ...], Field(exclude_if=lambda layers: not layers)] = ()
    trained: Annotated[tuple[values.Text, ...] | None, Field(exclude_if=lambda names: names is None)] = None
    adapters: Annotated[Adapters | None, Field(exclude_if=lambda adapters: adapters is None)] = None
    frozen: Annotated[tuple[Increment, ...], Field(exclude_if=lambda layers: not layers)] = ()
    masking: MaskingTerms | None = None
    depot: ObjectStoreTerms | None = None
    addresses: Addresses | None = None
    uplink: tuple[Component, ...] = ()
    training: TrainingPlan | None = None
    blobs: Mapping[str, BlobRef]
    layers: tuple[Increment, ...] = ()
    channels: Mapping[str, Annotated[int, Field(ge=0, le=topics.MAX_SHARED_TOPIC)]] = {}
    deadline_s: values.Seconds | None = None
    trial: rollout.TrialTerms | None = None
    provenance: Mapping[str, values.Text] = {}
    manifest: SignedManifest | None = None
    max_bytes: ClassVar[int] = message.MAX_MESSAGE_BYTES

    @model_validator(mode="after")
    def _blobs_are_named(self) -> "TaskBase":
        named = {*self.channels, *(increment.blob for increment in (*self.layers, *self.frozen))}
        if unknown := sorted(named - self.blobs.keys()):
            raise ValueError(f"there is no blob {unknown[0]!r}")
        return self

    @model_validator(mode="after")
    def _frames_follow_each_other(self) -> "TaskBase":
        frames = [0, *(increment.frame for increment in self.layers)]
        if any(after - before not in (0, 1) for before, after in pairwise(frames)):
            raise ValueError("the layers' frames are not in order")
        return self

    @property
    def plan(self) -> TrainingPlan | None:
        """The training that the task asks for; None if it asks for none."""
        return self.training

    def excess(self) -> str:
        """Why the task names more blobs, chunks or bytes than any device takes; empty if it does not."""
        refs = self.blobs.values()
        unpacked = sum(layer.unpacked or 0 for layer in (*self.layers, *self.frozen))
        bounds = (
            ("blobs", len(refs), MAX_BLOBS),
            ("chunks", sum(ref.chunks for ref in refs), MAX_CHUNKS),
            ("bytes", sum(ref.size for ref in refs), MAX_TASK_BYTES),
            ("bytes of unpacked layers", unpacked, MAX_TASK_BYTES),
            *(("bytes of the channel map", ref.size, MAX_CHANNEL_MAP_BYTES)
              for name, ref in self.blobs.items() if name == CHANNEL_MAP),
            *(("bytes of a graph", ref.size, MAX_GRAPH_BYTES) for ref in self.graphs().values()),
        )  # fmt: skip
        over = (f"{count} {what}: a task has at most {most}" for what, count, most in bounds if count > most)
        return next(over, "")

    def graphs(self) -> dict[str, BlobRef]:
        """The task's ONNX graphs by the names of their blobs."""
        drawn = (GRAPH, STEP, FEATURES, REST)
        return {n: ref for n, ref in self.blobs.items() if n in drawn or n.startswith(f"{STEP}-")}

    def pushed_blobs(self) -> tuple[BlobRef, ...]:
        """The blobs sent unasked with the task: small ones of the newest frame that no other device needs."""
        newest = max((increment.frame for increment in self.layers), default=0)
        own = [increment.blob for increment in self.layers if increment.frame == newest] or [*self.blobs]
        return tuple(self.blobs[n] for n in own if self.blobs[n].inline and n not in self.channels)


class TrainTask(TaskBase):
    """Train a sub-model as `training` says, and answer with an `Update` compressed by the codecs `uplink`.

    `personal` lets the device choose its own channels. With `returned` the update holds those parameters
    only: each is named itself, or by its network layer. With `masking` the update is masked, and its only
    group is `masked`. With `own_model` the device trains a second model, which it keeps, by the same plan
    with that objective alone. With `by_class` the device counts its held-out examples, and those that are
    recognised, class by class. With `statistics` nothing is trained: the update holds sums of the device's
    examples, and the task no model.
    """

    action: Literal["train"] = "train"
    training: TrainingPlan
    own_model: Annotated[Component | None, Field(exclude_if=lambda objective: objective is None)] = None
    by_class: Annotated[bool, Field(exclude_if=lambda asked: not asked)] = False
    statistics: Annotated[StatisticsRequest | None, Field(exclude_if=lambda asked: asked is None)] = None
    trial: Ignored = None
    provenance: Annotated[Mapping[str, values.Text], BeforeValidator(lambda _: {})] = {}

    @property
    def factor_names(self) -> frozenset[str]:
        """The arrays that the update holds as factors.

        Masks are added to whole arrays, and channels that a device chooses after its training are cut from
        them.
        """
        chosen_later = self.personal is not None and self.personal.scored_by is None
        if self.adapters is None or self.masking is not None or chosen_later:
            return frozenset()
        return frozenset(self.adapters.arrays)


class DeliverTask(TaskBase):
    """Export the final sub-model to ONNX, and answer with a `Delivery`.

    With a `trial` the model is served only if, by these terms, it is no worse than the one in use.
    `provenance` is the metadata of the exported file. With `personalise` the device trains the sub-model on
    its own data before that, with `where_classes_differ` only if its classes are far from equally frequent.
    Then scores of a classifier may know how frequent each class is on the device, with these `class_odds`.
    """

    action: Literal["deliver"] = "deliver"
    personal: Ignored = None
    returned: Ignored = None
    masking: Ignored = None
    uplink: Annotated[tuple[()], BeforeValidator(lambda _: ())] = ()
    training: Ignored = None
    personalise: Annotated[TrainingPlan | None, Field(exclude_if=lambda plan: plan is None)] = None
    where_classes_differ: Annotated[bool, Field(exclude_if=lambda asked: not asked)] = False
    class_odds: Annotated[float, Field(ge=1, le=1000, exclude_if=lambda odds: odds == 1)] = 1.0

    @property
    def plan(self) -> TrainingPlan | None:
        return self.personalise

    def as_training(self) -> TrainTask | None:
        """The task's training as a task of its own; None without one."""
        if self.personalise is None:
            return None
        fields = {name: getattr(self, name) for name in TaskBase.model_fields}
        return TrainTask(**{**fields, "action": "train", "training": self.personalise})


Task = TrainTask | DeliverTask


def task_class(action: object) -> type[TrainTask | DeliverTask]:
    """The class of a task with this `action`; a task without one is to be trained."""
    return DeliverTask if action == "deliver" else TrainTask


def _tag(task: Any) -> str:
    action = task.get("action") if isinstance(task, Mapping) else getattr(task, "action", None)
    return task_class(action).__name__


StoredTask = Annotated[
    Annotated[TrainTask, Tag("TrainTask")] | Annotated[DeliverTask, Tag("DeliverTask")], Discriminator(_tag)
]


@cache
def _adapter() -> TypeAdapter[Task]:
    return TypeAdapter(StoredTask)


def decode_task(text: str | bytes) -> Task:
    """Read a task's JSON; raises `ValidationError`."""
    return _adapter().validate_json(text)
