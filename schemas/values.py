"""Values in messages, with their bounds: device profiles, model and data, measurements."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field

from schemas.base import Digest, Frozen
from schemas.errors import MAX_SECONDS

Text = Annotated[str, Field(max_length=500)]
Instance = Annotated[str, Field(max_length=64)]  # of a device's process; a restarted one has another
Pem = Annotated[str, Field(max_length=4096, pattern=r"^-----BEGIN [A-Z ]+-----\n")]
"""A certificate or a certificate request."""
MAX_SITES = 1000  # most sites of a federation
LAST_ROUND = 1_000_000  # the highest round number; also the number of rounds of a run without end
RoundNumber = Annotated[int, Field(ge=0, le=LAST_ROUND)]
Attempt = Annotated[int, Field(ge=1)]  # planning of a run; a round may be planned again
Epoch = Annotated[int, Field(ge=1, le=10**9)]  # counts the servers that have held a federation
Seconds = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
UnixSeconds = Annotated[float, Field(ge=0, le=1e11)]  # seconds since 1970
Loss = Annotated[float, Field(ge=-1e9, le=1e9)]  # a mean over examples; diverged ones beyond are sent as null
Count = Annotated[int, Field(ge=0, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]  # the largest that numpy and torch take
Fraction = Annotated[float, Field(ge=0, le=1)]
Variant = Literal["fp32", "fp16", "int8"]  # of an ONNX file: as trained, 16-bit floats, 8-bit integers
FeatureType = Literal["fp32", "fp16"]  # of features that a device keeps


class Eligibility(StrEnum):
    """What the owner's rules allow a device now: to train, to wait with training, or to serve models only."""

    TRAIN = "train"
    PAUSE = "pause"
    INFER_ONLY = "infer-only"


Bytes = Annotated[int, Field(ge=0, le=10**15)]
TRAINING_PASSES = 3
"""Cost of a training step in forward passes (Kaplan et al. 2020, section 2.1; Baydin et al. 2018, section
3.2: at most four)."""


TrainerName = Literal["torch", "onnx"]  # onnxruntime with the server's step graphs


AcceleratorKind = Literal["cuda", "mps"]  # as torch calls them


class Accelerator(Frozen):
    """What torch trains on in place of the processor, and its memory when it was tried.

    `shares`: it is the board's memory, as on a Jetson; `free_bytes` are then the board's.
    """

    kind: AcceleratorKind
    name: Text = ""
    memory_bytes: Bytes = 0
    free_bytes: Bytes | None = None
    shares: bool = False


class MeasuredSpeed(Frozen):
    """A device's speed on a reference block with one trainer; None where it could not be measured.

    `training_macs_per_s` counts a training step as `TRAINING_PASSES` forward passes. `resident_bytes` is the
    memory of a process that is ready to train, without a model. `device` is what the trainer ran on.
    """

    trainer: TrainerName = "torch"
    device: Annotated[Literal["cpu", AcceleratorKind], Field(exclude_if=lambda name: name == "cpu")] = "cpu"
    training_macs_per_s: float | None = Field(default=None, gt=0, le=1e18)
    memory_bytes_per_s: float | None = Field(default=None, gt=0, le=1e15)
    resident_bytes: Bytes | None = None


class BoardState(Frozen):
    """Current readings of a board; None where they cannot be read.

    `memory_bytes` is the memory of the device's process, `memory_free_bytes` what it could still allocate,
    `load` the system's one-minute load average per core, `disk_free_bytes` the free space of the device's
    state folder.
    """

    celsius: float | None = Field(default=None, ge=-100, le=300)
    battery: Fraction | None = None
    memory_bytes: Bytes | None = None
    memory_free_bytes: Bytes | None = None
    load: float | None = Field(default=None, ge=0, le=1e6)
    disk_free_bytes: Annotated[Bytes | None, Field(exclude_if=lambda free: free is None)] = None


class CapabilityProfile(Frozen):
    """A device's capabilities, and its state when it reported them; unknown values are None.

    `memory_bytes` is the most that the device's process may use, `memory_free_bytes` what it could still
    allocate. `tier` 1 is the weakest; without a tier the server assigns one. `trainers` are those that the
    device would train with, the best first: a device without torch needs the server's step graphs. `speed` is
    that of one trainer, `further_speeds` are those of the others. `trains_on` is torch's accelerator.
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
    further_speeds: Annotated[tuple[MeasuredSpeed, ...], Field(max_length=4)] = ()
    celsius: float | None = Field(default=None, ge=-100, le=300)
    throttling: Annotated[tuple[Text, ...], Field(max_length=16)] = ()
    power: Literal["mains", "battery"] | None = None
    battery: Fraction | None = None
    link: Literal["wired", "wifi", "cellular"] | None = None
    tier: int | None = Field(default=None, ge=1, le=100)
    trainers: Annotated[tuple[TrainerName, ...], Field(min_length=1, max_length=4)] = ("torch",)
    trains_on: Annotated[Accelerator | None, Field(exclude_if=lambda found: found is None)] = None
    software: Mapping[Annotated[str, Field(max_length=40)], Text] = {}

    def speed_with(self, trainer: TrainerName) -> MeasuredSpeed | None:
        """The speed that was measured with this trainer, if any."""
        return next((speed for speed in self.speeds if speed.trainer == trainer), None)

    @property
    def speeds(self) -> tuple[MeasuredSpeed, ...]:
        return (*([self.speed] if self.speed else ()), *self.further_speeds)

    @property
    def card(self) -> Accelerator | None:
        """The accelerator that torch trains on, if it has memory of its own."""
        return None if self.trains_on is None or self.trains_on.shares else self.trains_on


ClassName = Annotated[str, Field(min_length=1, max_length=100)]
MAX_CLASS_NAMES = 200  # in one birth; a federation with more names them in its file or its test data


class DriftFinding(Frozen):
    """A drift test's alarm: the `statistic` of `examples` new examples that differs most, and its p-value."""

    statistic: Text
    p_value: float = Field(ge=0, le=1)
    examples: Count


class SkippedFiles(Frozen):
    """How many of a source's files, or of a table's rows, could not be read; the `first` with the reason."""

    files: int = Field(ge=1, le=10**12)
    of: int = Field(ge=1, le=10**12)
    first: Text
    what: Annotated[Literal["files", "rows"], Field(exclude_if=lambda what: what == "files")] = "files"

    def in_words(self) -> str:
        return f"{self.files} of {self.of} {self.what} are broken and left out; the first: {self.first}"


MAX_COLUMNS = 1000  # columns that are compared by name; a table with more is taken as it is

MAX_NAME, MAX_UNIT = 200, 40  # characters of a column's name and unit


class Feature(Frozen):
    """A column of a table that a network takes; `unit` and `kind` are empty where they are not known.

    A column of zeros and ones fits numbers and truth values.
    """

    name: Annotated[str, Field(min_length=1, max_length=MAX_NAME)]
    unit: Annotated[str, Field(max_length=MAX_UNIT, exclude_if=lambda unit: not unit)] = ""
    kind: Annotated[Literal["", "number", "truth"], Field(exclude_if=lambda kind: not kind)] = ""

    def in_words(self) -> str:
        """The name with its unit: `temperature [°C]`."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name


Features = Annotated[tuple[Feature, ...], Field(max_length=MAX_COLUMNS)]


class DataCard(Frozen):
    """A device's description of its data, without the data or the distribution of its classes.

    `named` data has its own `class_names`, sent unless they do not fit. All other labels are numbers below
    `num_classes`: classes of a list of numbers, else places in the federation's list. Of data that grows,
    `new` of the examples came since the device last trained, and `drift` is an alarm about them. `skipped`
    are broken files that the examples do without. Of `columns` without names there are none, and of more than
    fit only the first.
    """

    source: Text
    examples: Count
    input_shape: tuple[Annotated[int, Field(ge=1, le=10**6)], ...]
    num_classes: int = Field(ge=1, le=10**6)
    named: bool = False
    class_names: Annotated[tuple[ClassName, ...], Field(max_length=MAX_CLASS_NAMES)] = ()
    new: Annotated[Count | None, Field(exclude_if=lambda count: count is None)] = None
    drift: Annotated[DriftFinding | None, Field(exclude_if=lambda found: found is None)] = None
    skipped: Annotated[SkippedFiles | None, Field(exclude_if=lambda skipped: skipped is None)] = None
    columns: Annotated[Features | None, Field(exclude_if=lambda columns: columns is None)] = None

    @property
    def states_columns(self) -> bool:
        """Whether all columns are here, each with a name of its own."""
        names = {column.name for column in self.columns or ()}
        return bool(names) and self.input_shape[:1] == (len(names),)


CLASSIFICATION = "classification"


class ModelSpec(Frozen):
    """The network to build: a name in `edge_client.models`, or `package.module:factory`.

    `num_classes` is the number of its outputs. `task` is a name in `edge_client.data.tasks`: what it learns;
    a classification is not written.
    """

    name: Text
    input_shape: tuple[Annotated[int, Field(ge=1, le=65_536)], ...]
    num_classes: int = Field(ge=1, le=1_000_000)
    task: Annotated[str, Field(max_length=40, exclude_if=lambda name: name == CLASSIFICATION)] = (
        CLASSIFICATION
    )


MIN_MAX: Final = "min-max"
PictureScale = Annotated[float, Field(gt=0, le=1e12)] | Literal["min-max"]
"""What becomes full brightness of a picture file, if not its type's largest number: the value that times this
factor is 1; or each picture's own brightest pixel, while its darkest becomes black.
"""


Interpolation = Literal["bilinear", "bicubic"]


class Resizing(Frozen):
    """How a picture of another size than the network's is resized, with a filter that smooths as it shrinks.

    What is taken is its middle: the largest part with the network's proportions, times `crop` on each side;
    None takes the whole picture, and stretches it. With `letterbox` it keeps its proportions instead, at the
    top left of a black area.
    """

    crop: float | None = Field(default=None, gt=0, le=1)
    interpolation: Interpolation = "bilinear"
    letterbox: bool = Field(default=False, exclude_if=lambda said: not said)


class Preprocessing(Frozen):
    """From pixels to inputs: `(pixels / scale - mean) / std`, per colour channel.

    Labels that are numbers become targets likewise: `(label - target_mean) / target_std`, each by its own.
    Pixels of picture files are 255 at full brightness, which `picture_scale` may state otherwise. `rate` is
    the sampling rate of recordings in Hz. A score above `threshold` is unusual. `columns` are what the
    channels are, where they have names. Where `resizing` is stated, arrays of pictures are resized, too.
    """

    scale: float = Field(default=255.0, gt=0)
    mean: tuple[float, ...] = (0.0,)
    std: tuple[Annotated[float, Field(gt=0)], ...] = (1.0,)
    class_names: tuple[Text, ...] = ()
    rate: float | None = Field(default=None, gt=0, exclude_if=lambda rate: rate is None)
    picture_scale: PictureScale | None = Field(default=None, exclude_if=lambda scale: scale is None)
    resizing: Resizing | None = Field(default=None, exclude_if=lambda resizing: resizing is None)
    threshold: float | None = Field(default=None, exclude_if=lambda found: found is None)
    target_mean: tuple[float, ...] = Field(default=(), exclude_if=lambda found: not found)
    target_std: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        default=(), exclude_if=lambda found: not found
    )
    columns: Annotated[Features, Field(exclude_if=lambda columns: not columns)] = ()


Metrics = Annotated[
    Mapping[Annotated[str, Field(max_length=40)], Annotated[float, Field(ge=-1e9, le=1e9)]],
    Field(max_length=20),
]
"""Figures of a learning task by name, of one model on one set of examples."""


MAX_COUNTED_CLASSES = 100  # with more classes a device counts none of them
MetricCounts = Annotated[
    tuple[Annotated[tuple[Count, ...], Field(max_length=512)], ...],
    Field(max_length=MAX_COUNTED_CLASSES, exclude_if=lambda counts: not counts),
]
ClassCounts = tuple[Count, Count]  # examples of a class, and those of them that a model recognises


class KeptFeatures(Frozen):
    """Of a device's `examples` frozen layers ran on the `computed` ones; `bytes` of features are kept."""

    examples: Count
    computed: Count
    bytes: Bytes = 0


class TrainingMetrics(Frozen):
    """Measurements of local training. Losses are means per example.

    On `measured_on` local examples that are held out: `received_loss` of the received model, `accuracy` and
    all other figures of the trained one; `own_metrics` are of the model that the device keeps for itself.
    `by_class` are the trained model's counts, class by class, if the task asks for them, and `counts` those
    of which its figures on all devices are made (`edge_client.data.tasks`). `seconds` are for all trainings
    of the task. A sharpness-aware epoch counts as two, and so does each of its steps. `features` is None
    where all layers ran in every step. `trained_on` is the accelerator that torch used, or why not as it
    should have; empty on a device without.
    """

    examples: Count
    epochs: Count
    steps: Count
    train_loss: Loss | None = None
    received_loss: Loss | None = None
    accuracy: Fraction | None = None
    metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    own_metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    measured_on: Annotated[Count, Field(exclude_if=lambda count: not count)] = 0
    by_class: Annotated[
        tuple[ClassCounts, ...], Field(max_length=MAX_COUNTED_CLASSES, exclude_if=lambda counts: not counts)
    ] = ()
    counts: MetricCounts = ()
    seconds: Seconds = 0.0
    features: Annotated[KeptFeatures | None, Field(exclude_if=lambda kept: kept is None)] = None
    trained_on: Annotated[Text, Field(exclude_if=lambda where: not where)] = ""


class DeliveryVerdict(Frozen):
    """Whether a device serves the delivered model, or keeps the `earlier` one, and why.

    `accuracy` (new file) and `earlier_accuracy` (model in use before) are measured on the same `examples` of
    the device; None if they were not compared.
    """

    served: bool
    why: Text = ""
    earlier: Text = ""
    accuracy: Fraction | None = None
    earlier_accuracy: Fraction | None = None
    examples: Count = 0


class Personalisation(Frozen):
    """What the training of a delivered model on the device's own data has changed.

    `before` and `after` are the leading `metric` on held-out examples, of the received model and of the one
    that is `kept`: the `model` "personal", or "halfway" between the two. Unless one is kept, the device
    exports the model as received, `why` is the reason, and `after` is the personal one's.
    """

    kept: bool
    epochs: Count = 0
    metric: Annotated[str, Field(max_length=40)] = ""
    before: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None
    after: Annotated[float, Field(ge=-1e9, le=1e9)] | None = None
    why: Text = ""
    model: Annotated[str, Field(max_length=40, exclude_if=lambda name: not name)] = ""


class DeliveryMetrics(Frozen):
    """A device's measurements of its exported model. Times in milliseconds per image, sizes in bytes.

    `torch_accuracy` and `onnx_accuracy` are of the network as trained. `onnx_bytes`, `onnx_sha256`,
    `latency_ms`, `variant_accuracy` and `metrics` are of the file in use, a `variant` of it. Without torch
    there is no `torch_accuracy` or `max_difference`. Without a `verdict` the device serves that file. All
    figures are of the model after `personalisation`, if the task asks for that.
    """

    parameters: Count
    macs: Annotated[int, Field(ge=0, le=10**18)]
    onnx_bytes: Count
    onnx_sha256: Digest
    examples: Count
    torch_accuracy: Fraction | None = None
    onnx_accuracy: Fraction | None = None
    max_difference: float | None = Field(default=None, ge=0, le=1e9)
    latency_ms: float = Field(ge=0, le=1e9)
    variant: Variant = "fp32"
    variant_accuracy: Fraction | None = None
    metrics: Metrics = Field(default_factory=dict, exclude_if=lambda found: not found)
    why: Text = ""
    verdict: DeliveryVerdict | None = None
    personalisation: Annotated[Personalisation | None, Field(exclude_if=lambda found: found is None)] = None
