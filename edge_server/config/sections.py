"""The sections of a federation file on what is learned, and from what: model, data, training, tiers."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from edge_client.data.partition import parse_partition
from edge_client.data.pictures.scale import FULL, parsed_scale
from edge_client.data.tasks.registry import CLASSIFICATION, learning_task
from edge_client.models.registry import entry
from edge_client.pruning.channel_selection import mean_ratio
from edge_server.config.errors import UNNAMED
from edge_server.config.scaling import ColumnName, Scaling
from schemas import values
from schemas.base import Settings, kebab
from schemas.errors import ConfigError
from schemas.selectors import parse_where
from schemas.strategy import MAX_RANK, TrainingSettings


class ModelSettings(Settings):
    """The global network."""

    name: str = "two-nn"
    """A shipped network, one of a plugin, `torchvision:NAME`, `timm:NAME`, or `package.module:factory`."""
    task: str = CLASSIFICATION.name
    """What the network learns: "classification", "multi-label" (a yes or no per class), "regression",
    "forecasting" (the next steps of a series) or "anomaly" (a reconstruction of unlabelled examples).
    """
    num_classes: int | None = Field(default=None, ge=1)
    """Number of classes, or of numbers to predict; from `[data]` if unset."""
    input_shape: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Shape of one example, for images [channels, height, width]; from `[data]` if unset."""
    from_: str | None = Field(default=None, alias="from", min_length=1)
    """The model to start from: a version of the registry, a run folder, a folder `models/round-NNNN`, or a
    state.safetensors. It must be of the same network. Classes are matched by name; those that it does not
    know begin with drawn weights. Or weights from elsewhere: a safetensors file, a state dict of torch
    (.pt, .pth, .ckpt, .bin), an ONNX file, one of these in a Python package
    (`package:NAME/weights.pth`), `torchvision:NAME` or `timm:NAME` (with the extra `pretrained`),
    with `.WEIGHTS` for others than the default ones; the server downloads those. Three quarters of the
    network's numbers must be in them, its output layer apart.
    """

    def _check(self) -> None:
        entry(self.name)
        learning_task(self.task)


_PerColour = Field(min_length=1, max_length=4)
_Side = Annotated[int, Field(ge=1, le=4096)]
_Means = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], _PerColour]
_Deviations = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], _PerColour]


class DataSettings(Settings):
    """The server's test data, the classes and columns, and how simulated devices share the data."""

    classes: Annotated[tuple[values.ClassName, ...], Field(min_length=1, max_length=10_000)] | None = None
    """Names of all classes in the order of the model's outputs. If unset they are those of `source`, or
    else those that devices state before the first round.
    """
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=values.MAX_COLUMNS)] | None = (
        None
    )
    """Names of all inputs in the order in which the model takes them, with units where they have some:
    `["temperature [°C]", "co2"]`. If unset they are those of `source`, or else those of most devices before
    the first round. Every device's table is put into this order.
    """
    source: str | None = None
    """Data that the server tests on, and that simulated devices share."""
    data_root: Path | None = None
    """Folder of named data sets."""
    resize: _Side | tuple[_Side, _Side] | None = None
    """Height and width in pixels, one number or both, to which the pictures of `source` are resized, for the
    server and for simulated devices; if unset, the size that the weights of `[model] from` state, or else as
    they are. Real devices' arrays must have the network's size already, unless `mean`, `crop` or
    `interpolation` is set.
    """
    crop: Annotated[float, Field(gt=0, le=1)] | Literal["none"] | None = Field(
        default=None, exclude_if=lambda crop: crop is None
    )
    """The part of a picture of another size that is taken, on every device and in the exported files: its
    middle with the network's proportions, times this share on each side, or with "none" the whole picture,
    stretched. If unset it is what the weights of `[model] from` state, or "none".
    """
    interpolation: values.Interpolation | None = Field(default=None, exclude_if=lambda name: name is None)
    """How pictures of another size are resized, on every device and in the exported files: "bilinear" or
    "bicubic", smoothed as they shrink. If unset it is what the weights of `[model] from` state, or else
    "bilinear".
    """
    mean: _Means | None = Field(default=None, exclude_if=lambda mean: mean is None)
    """Mean of the pictures that the network knows, of pixels between 0 and 1: one number, or one per colour.
    Inputs are `(pixels - mean) / std`. If unset it is what the weights of `[model] from` state, or else
    `scaling` says it.
    """
    std: _Deviations | None = Field(default=None, exclude_if=lambda std: std is None)
    """Standard deviation that belongs to `mean`, of pixels between 0 and 1."""
    picture_scale: str | None = Field(default=None, exclude_if=lambda text: text is None)
    """What becomes full brightness of devices' picture files, as they state it in `folder:PATH?scale=`:
    "min-max", or a factor such as "1/4095". If unset it is what `source` states, or the range of the files'
    type.
    """
    partition: str = "iid"
    """How simulated devices share the data: "iid", "dirichlet", "shards", "paired" (every two devices
    have the same classes) or "blocks" (contiguous parts in the order of the source).
    """
    alpha: float | None = Field(default=None, gt=0)
    """Parameter of the Dirichlet partition: the smaller, the more the devices differ."""
    shards: int | None = Field(default=None, ge=1)
    """Shards per device of the partition by shards."""
    samples_per_client: int | None = Field(default=None, ge=1)
    """Examples of each simulated device; an equal share if unset."""
    test_samples: int | None = Field(default=None, ge=1)
    """Examples that the server tests on, always the same ones; all if unset."""
    scaling: Literal["source", "federated"] = "source"
    """Where the means and standard deviations of inputs and numbers to learn come from: "source" is the
    server's data, "federated" asks the devices before the first round.
    """
    statistics: Scaling | None = None
    """Means and standard deviations, whatever the scaling; a run writes here what it has asked for."""

    @property
    def sides(self) -> tuple[int, int] | None:
        """Height and width to which pictures of `source` are resized, if they are."""
        return (self.resize, self.resize) if isinstance(self.resize, int) else self.resize

    @property
    def resizing(self) -> values.Resizing | None:
        """How pictures of another size are resized everywhere, if anything is stated of what they become."""
        if self.crop is None and self.interpolation is None and self.mean is None:
            return None
        crop = None if self.crop == "none" else self.crop
        return values.Resizing(crop=crop, interpolation=self.interpolation or "bilinear")

    @property
    def common_scale(self) -> values.PictureScale | None:
        """The scale of picture files that is stated; None for the range of their type."""
        return parsed_scale(self.picture_scale or FULL, source="picture-scale")

    @property
    def partition_spec(self) -> str:
        """The partition with its number, as `edge-client --partition` takes it."""
        number = {"dirichlet": self.alpha, "shards": self.shards}.get(self.partition)
        return self.partition if number is None else f"{self.partition}({number})"

    def _check(self) -> None:
        for key, one, names in (("classes", "class", self.classes), ("columns", "column", self.columns)):
            if twice := [name for name, count in Counter(names or ()).items() if count > 1]:
                raise ValueError(f"{key}: '{twice[0]}' is named more than once: name each {one} once")
        if len(self.mean or ()) != len(self.std or ()):
            raise ValueError("mean and std: state as many means as standard deviations")
        if self.mean is not None and (self.statistics is not None or self.scaling == "federated"):
            other = "[data.statistics]" if self.statistics is not None else 'scaling = "federated"'
            raise ValueError(f"mean: inputs are scaled by {other}: leave out the one or the other")
        parse_partition(self.partition_spec)
        _ = self.common_scale


_Share = Annotated[float, Field(ge=0, lt=1)]
_Ratio = Annotated[
    Annotated[_Share, Tag(f"{UNNAMED}number")] | Annotated[Mapping[str, _Share], Tag(f"{UNNAMED}table")],
    Discriminator(lambda value: f"{UNNAMED}{'table' if isinstance(value, Mapping) else 'number'}"),
]
_RATES = {"adam": 0.001, "adamw": 0.001}


def _rate(training: Mapping[str, Any]) -> float:
    """The default of `[training] learning-rate` with these settings."""
    return _RATES.get(training.get("optimizer", ""), 0.01)


def warm_up_steps(training: Mapping[str, Any]) -> int:
    """The default of `[training] warm-up-steps` with these settings."""
    return 10 if training.get("optimizer") in _RATES else 0


_Part = Annotated[str, Field(min_length=1, max_length=200)]
_Parts = Annotated[tuple[_Part, ...], Field(min_length=1)]
TrainedPart = Annotated[
    Annotated[_Part, Tag(f"{UNNAMED}text")] | Annotated[_Parts, Tag(f"{UNNAMED}list")],
    Discriminator(lambda value: f"{UNNAMED}{'text' if isinstance(value, str) else 'list'}"),
]


class RunTrainingSettings(TrainingSettings):
    """How devices train locally."""

    train: TrainedPart = Field(default="all", exclude_if=lambda part: part == "all")
    """What devices train of the network; the rest is frozen: it is sent once, keeps its weights and
    statistics, and is never sent back. "all"; "head", the output layer, or neck and head of a detector;
    "last-2", the last two blocks and what follows them; "norms", scales and shifts of normalisations;
    "biases"; "lora", a change of low `rank` of linear layers and of convolutions of one position, or of those
    of a part, "lora:last-4"; or a list of these and of names and globs of layers and arrays: ["layer4.*",
    "head"].
    """
    rank: int = Field(default=8, ge=1, le=MAX_RANK, exclude_if=lambda rank: rank == 8)
    """Rank of the changes that "lora" in `train` makes (Hu et al. 2022): devices train and send two factors
    of r (m + n) numbers in place of a weight's m n, and the server averages their products. A weight that has
    no more numbers than its factors is trained whole.
    """

    optimizer: str = "adam"
    """"sgd", "adam" or "adamw". A `learning-rate` or `momentum` without an optimizer is that of SGD."""
    learning_rate: float = Field(default_factory=_rate, gt=0)
    """Step size of the optimizer. By default 0.001 with Adam and AdamW, and 0.01 with SGD."""
    local_epochs: int = Field(default=3, ge=0, le=10_000)
    learning_rate_decay: float = Field(default=1.0, gt=0, le=1)
    """Factor of the learning rate from each round to the next: round r trains at
    `learning-rate * learning-rate-decay ** (r - 1)`.
    """

    warm_up_steps: int = Field(default_factory=warm_up_steps, ge=0, le=10_000)
    sam_normalised: bool = Field(default=True, exclude_if=lambda normalised: normalised)
    """Sharpness-aware steps (`sam-radius`) also in networks with normalisation, whose weights have no scale
    that a radius could fit.
    """
    sam_passes: int = Field(default=0, ge=0, exclude_if=lambda passes: not passes)
    """Sharpness-aware steps only in runs of at least this many epochs (rounds times `local-epochs`). In
    shorter ones devices do not learn their examples by heart, and such steps only cost epochs.
    """
    personalise_epochs: Annotated[int, Field(ge=0, le=10_000)] | Literal["auto"] = 0
    """Epochs for which a device trains a delivered model on its own data before it exports it; 0 exports the
    model as it is. The trained model is kept only if it is better on data that the device holds out. With
    "auto" a classifier is trained where the device's classes are far from equally frequent: for twice the
    epochs of the run, at most 20. What the device then keeps may hardly know classes that it lacks.
    """
    class_odds: float = Field(default=3.0, ge=1, le=1000)
    """By how much a delivered classifier prefers classes that a device has most of to those that it lacks,
    where they are far from equally frequent, and where that is better on data that the device holds out. 1
    exports the scores as they are; a device that only ever sees its own classes gains by 10.
    """

    @model_validator(mode="before")
    @classmethod
    def _rates_alone_are_of_sgd(cls, stated: Any) -> Any:
        names = {kebab(key) for key in stated} if isinstance(stated, Mapping) else set()
        alone = "optimizer" not in names and names & {"learning-rate", "momentum"}
        return {**stated, "optimizer": "sgd"} if alone else stated

    def of_round(self, number: int) -> TrainingSettings:
        """The settings of a device in round `number`, counted from 1."""
        settings = self.model_dump(include=set(TrainingSettings.model_fields))
        rate = self.learning_rate * self.learning_rate_decay ** (number - 1)
        return TrainingSettings(**{**settings, "learning_rate": rate})


class TierSettings(Settings):
    """Capability tiers, the weakest first."""

    ratios: Annotated[tuple[_Ratio, ...], Field(min_length=1)] = (0.7, 0.5, 0.3, 0.1, 0.0)
    """Pruning ratio of each tier. A ratio may be a table per layer, `{"layer1.*" = 0.2}` (ATTENDING,
    appendix H): the first glob that matches counts, other layers stay whole. A number cuts nothing of a
    network with frozen layers, of which every tier has the whole.
    """
    epochs_per_tier: tuple[Annotated[int, Field(ge=1, le=10_000)], ...] = ()
    """Epochs per round of each tier; `[training] local-epochs` for all if empty."""
    train: tuple[TrainedPart, ...] = Field(default=(), exclude_if=lambda parts: not parts)
    """What each tier trains, as in `[training] train`: ["head", "head", "last-2", "last-4", "all"]; a tier
    beyond the list counts as the last one. `[training] train` for all if empty.
    """
    ranks: tuple[Annotated[int, Field(ge=1, le=MAX_RANK)], ...] = Field(
        default=(), exclude_if=lambda ranks: not ranks
    )
    """Rank of each tier's changes where it trains "lora"; `[training] rank` for all if empty."""
    equal_work: bool = Field(default=True, exclude_if=lambda equal: equal)
    """Further epochs for a device that trains smaller tiers in some of its steps (objective `ordered-dropout`
    with `own`): as many as it takes to compute what it would with all steps at its own width.
    """
    by_label: Mapping[str, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)
    """Tiers of devices that state none, by their labels: { "role=scale" = 1, "site=barn,gpu" = 5 }. The first
    selector that matches counts; without a match memory and speed decide.
    """
    keep_multiple: int = Field(default=1, ge=1, le=256)
    """Round the number of kept channels up to a multiple of this. On many processors onnxruntime is fast
    at multiples of 8.
    """

    def of_labels(self, labels: Mapping[str, str]) -> int | None:
        """The tier that `by-label` gives a device with these labels; None without a match."""
        found = (tier for where, tier in self.by_label.items() if parse_where(where).matches(labels))
        return next(found, None)

    def _check(self) -> None:
        for where, tier in self.by_label.items():
            try:
                parse_where(where)
            except ConfigError as error:
                raise ValueError(f"by-label: {error}") from error
            if tier > len(self.ratios):
                raise ValueError(f"by-label: '{where}' = {tier}: tiers are 1 to {len(self.ratios)}")

    @property
    def levels(self) -> tuple[float, ...]:
        """One number per tier: a table's mean (ATTENDING, eq. 10)."""
        return tuple(mean_ratio(ratio) for ratio in self.ratios)
