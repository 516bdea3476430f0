"""What messages are made of: reason codes, profiles, what to build, what was measured; with bounds."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Frozen
from schemas.names import Digest

Text = Annotated[str, Field(max_length=500)]
Instance = Annotated[str, Field(max_length=64)]
"""Which process of a device is meant: of a restarted one it is another."""
Pem = Annotated[str, Field(max_length=4096, pattern=r"^-----BEGIN [A-Z ]+-----\n")]
"""A certificate, or a request for one, as text."""
RoundNumber = Annotated[int, Field(ge=0, le=1_000_000)]
Attempt = Annotated[int, Field(ge=1)]
"""Which wave of tasks of a run: each planning, also of the same round, has a higher one."""
Seconds = Annotated[float, Field(ge=0, le=1e9)]
UnixSeconds = Annotated[float, Field(ge=0, le=1e11)]
"""Seconds since 1970."""
Loss = Annotated[float, Field(ge=-1e9, le=1e9)]
"""A mean over examples; what lies beyond these bounds has diverged and is told as no number at all."""
Count = Annotated[int, Field(ge=0, le=10**12)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Variant = Literal["fp32", "fp16", "int8"]
"""What an ONNX file computes with: as trained, 16-bit floats, or 8-bit integers."""


class Reason(StrEnum):
    """Why something was refused: stable codes that every program may switch on."""

    MALFORMED = "malformed"
    OVERSIZED = "oversized"
    UNKNOWN_KIND = "unknown-kind"
    UNSUPPORTED_PROTOCOL = "unsupported-protocol"
    WRONG_FEDERATION = "wrong-federation"
    WRONG_SENDER = "wrong-sender"
    NOT_SELECTED = "not-selected"
    STALE_ROUND = "stale-round"
    ALREADY_COUNTED = "already-counted"
    DIGEST_MISMATCH = "digest-mismatch"
    WRONG_SHAPE = "wrong-shape"
    NOT_FINITE = "not-finite"
    OUT_OF_BOUNDS = "out-of-bounds"
    EXAGGERATED = "exaggerated"
    REPLAYED = "replayed"
    HARMFUL = "harmful"
    QUARANTINED = "quarantined"
    INCOMPATIBLE = "incompatible"
    UNKNOWN_BLOB = "unknown-blob"
    TASK_FAILED = "task-failed"
    NO_MEMORY = "no-memory"
    UNTRUSTED = "untrusted"
    NO_SPACE = "no-space"
    NOT_ENTITLED = "not-entitled"
    TOO_MANY_REQUESTS = "too-many-requests"
    INELIGIBLE = "ineligible"
    SAME_NAME = "same-name"


class Eligibility(StrEnum):
    """What its owner's rules let a device do now: train, wait with it for a while, or nothing but serve."""

    TRAIN = "train"
    PAUSE = "pause"
    INFER_ONLY = "infer-only"


Bytes = Annotated[int, Field(ge=0, le=10**15)]


TRAINING_PASSES = 3
"""What a training step costs, in forward passes (Kaplan et al. 2020, section 2.1; Baydin et al. 2018, section
3.2: at most four)."""


class MeasuredSpeed(Frozen):
    """What a device has measured on a reference block; what could not be measured is left out.

    `training_macs_per_s` counts a step as `TRAINING_PASSES` forward passes. `resident_bytes` is what a
    process holds that can train, before it has anything to train.
    """

    training_macs_per_s: float | None = Field(default=None, gt=0, le=1e18)
    memory_bytes_per_s: float | None = Field(default=None, gt=0, le=1e15)
    resident_bytes: Bytes | None = None


class BoardState(Frozen):
    """How a board is just now; what cannot be read is left out.

    `memory_bytes` is what the device's process holds, `memory_free_bytes` what it could still take, `load`
    the system's mean of the last minute per core.
    """

    celsius: float | None = Field(default=None, ge=-100, le=300)
    battery: Fraction | None = None
    memory_bytes: Bytes | None = None
    memory_free_bytes: Bytes | None = None
    load: float | None = Field(default=None, ge=0, le=1e6)


class CapabilityProfile(Frozen):
    """What a device can do, and how it was when it said so. `tier` 1 is the weakest; absent: let the server
    decide.

    `memory_bytes` is what there is for the device's process at most, `memory_free_bytes` what it could still
    take. What is not known is left out.
    """

    machine: Text = ""
    processor: Text = ""
    architecture: Text = ""
    cores: int = Field(default=1, ge=1, le=100_000)
    memory_bytes: Bytes = 0
    memory_free_bytes: Bytes | None = None
    disk_bytes: Bytes | None = None
    disk_free_bytes: Bytes | None = None
    accelerator: Text | None = None
    speed: MeasuredSpeed | None = None
    celsius: float | None = Field(default=None, ge=-100, le=300)
    throttling: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    power: Literal["mains", "battery"] | None = None
    battery: Fraction | None = None
    link: Literal["wired", "wifi", "cellular"] | None = None
    tier: int | None = Field(default=None, ge=1, le=100)
    software: Mapping[Annotated[str, Field(max_length=40)], Text] = {}


ClassName = Annotated[str, Field(min_length=1, max_length=100)]
MAX_CLASS_NAMES = 200
"""So many a birth may state; a federation may have more, which its file or its server's data name."""


class DataCard(Frozen):
    """What a device says of its data: never the data, nor how its classes are spread.

    The classes of `named` data have names of their own: `class_names`, unless they do not fit. All other
    labels are indices into the federation's list.
    """

    source: Text
    examples: Count
    input_shape: tuple[Annotated[int, Field(ge=1, le=10**6)], ...]
    num_classes: int = Field(ge=1, le=10**6)
    named: bool = False
    class_names: Annotated[tuple[ClassName, ...], Field(max_length=MAX_CLASS_NAMES)] = ()


class ModelSpec(Frozen):
    """Which network to build: a name of `edge_client.models` or `package.module:factory`."""

    name: Text
    input_shape: tuple[Annotated[int, Field(ge=1, le=65_536)], ...]
    num_classes: int = Field(ge=1, le=1_000_000)


class Preprocessing(Frozen):
    """How pixels become inputs: `(pixels / scale - mean) / std`, per colour channel."""

    scale: float = Field(default=255.0, gt=0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (1.0,)
    class_names: tuple[Text, ...] = ()


class PersonalPruning(Frozen):
    """The client shall choose its own channels after training: `ratios` per group, ranked by attention."""

    ratios: Mapping[str, Annotated[float, Field(ge=0, lt=1)]]


class TrainingMetrics(Frozen):
    """What local training measured. Losses are means per example.

    On local held-out data: `received_loss` of the model that came, `accuracy` of the one that was trained.
    """

    examples: Count
    epochs: Count
    steps: Count
    train_loss: Loss | None = None
    received_loss: Loss | None = None
    accuracy: Fraction | None = None
    seconds: Seconds = 0.0


class DeliveryVerdict(Frozen):
    """Whether a device serves the model that it was delivered, or goes on with the `earlier` one, and why.

    `accuracy` is the new file's and `earlier_accuracy` that of the model in use before, both on the same
    `examples` of the device; left out where they were not compared.
    """

    served: bool
    why: Text = ""
    earlier: Text = ""
    accuracy: Fraction | None = None
    earlier_accuracy: Fraction | None = None
    examples: Count = 0


class DeliveryMetrics(Frozen):
    """What the device measured on its exported model. Times in milliseconds per image, sizes in bytes.

    `torch_accuracy` and `onnx_accuracy` are of the network as trained; `onnx_bytes`, `onnx_sha256` and
    `latency_ms` are of the file that the device made of it, which is that `variant` with `variant_accuracy`.
    The `verdict` says whether the device serves that file; a device that says none does.
    """

    parameters: Count
    macs: Annotated[int, Field(ge=0, le=10**18)]
    onnx_bytes: Count
    onnx_sha256: Digest
    examples: Count
    torch_accuracy: Fraction | None = None
    onnx_accuracy: Fraction | None = None
    max_difference: float = Field(ge=0, le=1e9)
    latency_ms: float = Field(ge=0, le=1e9)
    variant: Variant = "fp32"
    variant_accuracy: Fraction | None = None
    why: Text = ""
    verdict: DeliveryVerdict | None = None
