"""The sections of a federation file, each validated separately."""

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
from edge_server.config.board_profiles import profile
from edge_server.config.errors import UNNAMED
from edge_server.config.scaling import ColumnName, Scaling
from edge_server.strategy.weighting.claims import Claims
from schemas.base import Settings, kebab
from schemas.bounds import MAX_SECONDS
from schemas.errors import ConfigError, nearest
from schemas.labels import parse_label, parse_where
from schemas.names import Name
from schemas.strategy import MAX_RANK, TrainingSettings
from schemas.values import (
    LAST_ROUND,
    MAX_COLUMNS,
    MAX_SITES,
    ClassName,
    Interpolation,
    PictureScale,
    Resizing,
    Seconds,
    Seed,
    TrainerName,
)

ENGINE_NAMES = ("local", "ray")  # engines for simulated devices; `simulation.engines` has an entry for each
When = Literal["at-once", "every-s", "new-data", "drift"]  # `rounds.openings` has an entry for each


class RecipeInfo(Settings):
    """A recipe's description."""

    name: str
    summary: str
    citation: str


class FederationSettings(Settings):
    """The run as a whole."""

    name: Name = "federation"
    """Name of the federation: part of every MQTT topic."""
    seed: Seed = 0
    """Seed of everything random; the same seed repeats a simulation to the bit."""
    rounds: int = Field(default=20, ge=0, lt=LAST_ROUND)
    """Number of rounds of the run; 0 goes on until the run is stopped."""
    when: When = "at-once"
    """When rounds begin, after the `first-rounds`: "at-once", "every-s" (this number of seconds after
    the last), "new-data" (as soon as devices have enough new examples) or "drift" (as soon as enough devices
    report that their new examples differ).
    """
    rounds_per_opening: int = Field(default=3, ge=1)
    """Rounds that follow each other each time; the model is delivered after them."""
    first_rounds: int = Field(default=0, ge=0)
    """Rounds that follow each other at the beginning, at least, since a new model needs more of them than a
    trained one that meets new data. They end with an opening; 0 is one opening.
    """
    every_s: float = Field(default=3600.0, gt=0, le=MAX_SECONDS)
    """Seconds from a round to the next, for when = "every-s"."""
    new_examples: int = Field(default=100, ge=1)
    """New examples of all devices together that open rounds, for when = "new-data"."""
    drifting: int = Field(default=1, ge=1)
    """Devices that report a drift that open rounds, for when = "drift"."""
    evaluate_every: int = Field(default=1, ge=1)
    """The server tests the full model after every `evaluate-every` rounds, and after the last."""
    evaluate_tiers_every: int = Field(default=1, ge=1)
    """The server also tests every tier's sub-model after every `evaluate-tiers-every` rounds, if the round is
    tested at all."""
    testers: int | None = Field(default=None, ge=0, le=64)
    """Processes that test the model while the next round runs; with 0 the server tests between two rounds. By
    default there are some, by cores, where a test takes long and a simulation leaves cores, and else none.
    The history is the same."""
    deliver: Literal["trial", "force", "none"] = "trial"
    """What devices do with the final model: "trial" serves it if it is no worse than the model in use,
    "force" serves it in any case, "none" leaves devices as they are.
    """
    deliver_every: int = Field(default=0, ge=0)
    """Also deliver after every `deliver-every` rounds; 0 delivers only at the end."""
    replay_mb: int = Field(default=1000, ge=0)
    """Megabytes of updates to keep for `edge-server replay`, newest rounds first."""
    receivers: int = Field(default=0, ge=0, le=64)
    """Processes that receive uploads in place of the server."""
    aggregators: int | None = Field(default=None, ge=0, le=64)
    """Processes that examine and add updates besides the server, 0 for none. If unset, one less than the
    machine has cores, started once 8 MB of updates wait. Of recipes that need each update they only examine.
    """
    sites: Annotated[tuple[Name, ...], Field(max_length=MAX_SITES)] = ()
    """Sites whose devices take part through a gateway (`edge-server gateway`): the devices of the site "barn"
    are those whose names begin with "barn.".
    """
    signing_key: Path | None = None
    """Ed25519 key (PEM, mode 0600) that signs tasks and models; made if it is missing. Without it each run
    has a key of its own.
    """
    trains: bool = True
    """Whether devices train. If not, they measure the model that the run starts from on data that they hold
    out, and send nothing back (`edge-server evaluate`).
    """
    by_class: bool = True
    """Whether devices that only measure also count, for each class, the examples that they hold out and those
    that the model recognises. With secure aggregation, or privacy without `release-metrics`, they do not.
    """
    statistics: bool = False
    """Devices neither train nor measure the model: they send counts, sums and histograms of their data
    (`edge-server statistics`).
    """
    roll_back: bool = True
    """Undo a round whose model no device can train, leave out the devices that made it, and continue. A model
    with numbers that are not finite, or that gives no finite loss on the server's data, is undone before the
    next round; `testers` try the first 256 examples for that, and the rest too if the loss is enormous.
    """

    @property
    def last_round(self) -> int:
        """The number of the last round; `LAST_ROUND` if the run has no end."""
        return self.rounds or LAST_ROUND


class ClientSettings(Settings):
    """Which devices take part in a round, and how long it may take."""

    mode: Literal["rounds", "buffered"] = "rounds"
    """"rounds" closes a round when its devices have answered; "buffered" closes it with every
    `buffer_size` updates.
    """
    num_clients: int = Field(default=5, ge=1)
    """Devices of the federation."""
    where: str = ""
    """Only devices whose labels match take part: "site=barn", "role!=camera", "site in (barn,field)", "gpu"
    or "!gpu", with commas between conditions. Labels of `edge-server inventory label` win over those that a
    device states (`edge-client run --label`).
    """
    fraction: float = Field(default=1.0, gt=0, le=1)
    """Share of the devices that a round selects, unless `[strategy] fraction` states a schedule."""
    start_clients: int | None = Field(default=None, ge=1)
    """Devices that must be present before the run starts; all if unset."""
    min_clients: int = Field(default=1, ge=1)
    """Least number of devices that a round selects."""
    quorum: float = Field(default=0.5, ge=0, le=1)
    """Share of the selected devices whose updates a round needs; with fewer it is abandoned and planned
    again."""
    deadline_s: float = Field(default=600.0, gt=0, le=MAX_SECONDS)
    """Seconds until a round closes with the updates that it has."""
    rejoin_s: float = Field(default=15.0, ge=0, le=MAX_SECONDS)
    """Seconds that a round waits for a device that lost its connection."""
    uploads_at_once: int = Field(default=32, ge=1)
    """Uploads that run at the same time; four times as many whole updates may wait for their checks."""
    over_select: float = Field(default=1.0, ge=1)
    """Factor by which a round selects more devices than it needs."""
    buffer_size: int = Field(default=10, ge=1)
    """Updates that close a buffered round."""
    max_staleness: int = Field(default=20, ge=0)
    """Rounds by which an update may lag behind in buffered mode."""
    concurrency: int | None = Field(default=None, ge=1)
    """Devices that train at the same time in buffered mode; all if unset."""

    @model_validator(mode="after")
    def _where_is_a_selector(self) -> "ClientSettings":
        try:
            parse_where(self.where)
        except ConfigError as error:
            raise ValueError(f"where: {error}") from error
        return self

    @model_validator(mode="after")
    def _buffer_can_be_filled(self) -> "ClientSettings":
        at_once = self.num_clients if self.concurrency is None else self.concurrency
        if self.mode == "rounds":
            return self
        if self.buffer_size > self.num_clients:
            raise ValueError(f"buffer-size {self.buffer_size} is more than num-clients {self.num_clients}")
        if self.buffer_size > at_once:
            raise ValueError(f"buffer-size {self.buffer_size} is more than concurrency {at_once}")
        if self.over_select > 1:
            raise ValueError("over-select is for mode 'rounds': a buffer waits for nobody in particular")
        return self


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
    (.pt, .pth, .ckpt, .bin), an ONNX file, `torchvision:NAME` or `timm:NAME` (with the extra `pretrained`),
    with `.WEIGHTS` for others than the default ones; the server downloads those. Three quarters of the
    network's numbers must be in them, its output layer apart.
    """

    @model_validator(mode="after")
    def _model_is_known(self) -> "ModelSettings":
        try:
            entry(self.name)
            learning_task(self.task)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


_PerColour = Field(min_length=1, max_length=4)
_Means = Annotated[tuple[Annotated[float, Field(ge=0, le=1)], ...], _PerColour]
_Deviations = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], _PerColour]


class DataSettings(Settings):
    """The server's test data, the classes and columns, and how simulated devices share the data."""

    classes: Annotated[tuple[ClassName, ...], Field(min_length=1, max_length=10_000)] | None = None
    """Names of all classes in the order of the model's outputs. If unset they are those of `source`, or
    else those that devices state before the first round.
    """
    columns: Annotated[tuple[ColumnName, ...], Field(min_length=1, max_length=MAX_COLUMNS)] | None = None
    """Names of all inputs in the order in which the model takes them, with units where they have some:
    `["temperature [°C]", "co2"]`. If unset they are those of `source`, or else those of most devices before
    the first round. Every device's table is put into this order.
    """
    source: str | None = None
    """Data that the server tests on, and that simulated devices share."""
    data_root: Path | None = None
    """Folder of named data sets."""
    resize: int | None = Field(default=None, ge=1, le=4096)
    """Height and width in pixels to which the pictures of `source` are resized, for the server and for
    simulated devices; if unset, the size that the weights of `[model] from` state, or else as they are. Real
    devices' arrays must have the network's size already, unless `mean`, `crop` or `interpolation` is set.
    """
    crop: Annotated[float, Field(gt=0, le=1)] | Literal["none"] | None = Field(
        default=None, exclude_if=lambda crop: crop is None
    )
    """The part of a picture of another size that is taken, on every device and in the exported files: its
    middle with the network's proportions, times this share on each side, or with "none" the whole picture,
    stretched. If unset it is what the weights of `[model] from` state, or "none".
    """
    interpolation: Interpolation | None = Field(default=None, exclude_if=lambda name: name is None)
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
    def resizing(self) -> Resizing | None:
        """How pictures of another size are resized everywhere, if anything is stated of what they become."""
        if self.crop is None and self.interpolation is None and self.mean is None:
            return None
        crop = None if self.crop == "none" else self.crop
        return Resizing(crop=crop, interpolation=self.interpolation or "bilinear")

    @property
    def common_scale(self) -> PictureScale | None:
        """The scale of picture files that is stated; None for the range of their type."""
        return parsed_scale(self.picture_scale or FULL, source="picture-scale")

    @property
    def partition_spec(self) -> str:
        """The partition with its number, as `edge-client --partition` takes it."""
        number = {"dirichlet": self.alpha, "shards": self.shards}.get(self.partition)
        return self.partition if number is None else f"{self.partition}({number})"

    @model_validator(mode="after")
    def _names_differ(self) -> "DataSettings":
        for key, one, names in (("classes", "class", self.classes), ("columns", "column", self.columns)):
            if twice := [name for name, count in Counter(names or ()).items() if count > 1]:
                raise ValueError(f"{key}: '{twice[0]}' is named more than once: name each {one} once")
        return self

    @model_validator(mode="after")
    def _inputs_are_scaled_once(self) -> "DataSettings":
        if len(self.mean or ()) != len(self.std or ()):
            raise ValueError("mean and std: state as many means as standard deviations")
        if self.mean is not None and (self.statistics is not None or self.scaling == "federated"):
            other = "[data.statistics]" if self.statistics is not None else 'scaling = "federated"'
            raise ValueError(f"mean: inputs are scaled by {other}: leave out the one or the other")
        return self

    @model_validator(mode="after")
    def _parts_are_known(self) -> "DataSettings":
        try:
            parse_partition(self.partition_spec)
            _ = self.common_scale
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


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
    statistics, and is never sent back. "all"; "head", the output layer; "last-2", the last two blocks and
    what follows them; "norms", scales and shifts of normalisations; "biases"; "lora", a change of low `rank`
    of linear layers and of convolutions of one position; or a list of these and of names and globs of layers
    and arrays: ["layer4.*", "head"].
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
    appendix H): the first glob that matches counts, other layers stay whole.
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

    @model_validator(mode="after")
    def _labels_name_tiers(self) -> "TierSettings":
        for where, tier in self.by_label.items():
            try:
                parse_where(where)
            except ConfigError as error:
                raise ValueError(f"by-label: {error}") from error
            if tier > len(self.ratios):
                raise ValueError(f"by-label: '{where}' = {tier}: tiers are 1 to {len(self.ratios)}")
        return self

    @property
    def levels(self) -> tuple[float, ...]:
        """One number per tier: a table's mean (ATTENDING, eq. 10)."""
        return tuple(mean_ratio(ratio) for ratio in self.ratios)


def _norm_bound(firewall: Mapping[str, Any]) -> float:
    """The default of `norm-factor` and `norm-spread` with these settings."""
    return 3.5 if firewall.get("robust") else 5.0


def _harm_bound(firewall: Mapping[str, Any]) -> float:
    """The default of `leave-one-out` with these settings."""
    return 0.15 if firewall.get("robust") else 0.35


class FirewallSettings(Settings):
    """What an update must satisfy beyond its shape, and what repeated refusals lead to."""

    robust: bool = Field(default=False, exclude_if=lambda robust: not robust)
    """Bounds for a fleet in which one device of five may lie: `norm-factor` and `norm-spread` are 3.5 and
    `leave-one-out` is 0.15, where they are not stated. Honest devices that have few of many classes are
    refused more often.
    """
    norm_bound: bool = True
    """Whether the norms of updates are bounded."""
    norm_window: int = Field(default=100, ge=3, le=10_000)
    """Norms of accepted updates that the bound looks back on."""
    norm_history: int = Field(default=10, ge=3)
    """Norms that must be known before the bound follows them."""
    norm_factor: float = Field(default_factory=_norm_bound, ge=1)
    """Multiple of the median norm that an update may have, by default 5."""
    norm_spread: float = Field(default_factory=_norm_bound, ge=1)
    """Standard deviations (by MAD) above the median norm that an update may have, by default 5; the wider
    bound counts."""
    norm_first: float = Field(default=100.0, gt=0)
    """Multiple of the model's own norm that an update may have until enough norms are known."""
    max_examples: int = Field(default=10_000_000, ge=1, le=10**12)
    """Largest number of examples that counts for a device."""
    max_examples_factor: float = Field(default=5.0, ge=1)
    """Largest number of examples that counts for a device, as a multiple of the other devices' median."""
    canary: float | None = Field(default=None, gt=0, lt=1)
    """Accuracy on the server's test data that a single update, or a site's sum, may cost; off if unset."""
    leave_one_out: float = Field(default_factory=_harm_bound, ge=0, lt=1)
    """Harm that a device's updates may add up to on the server's test data, by default 0.35; 0: it is not
    measured. At 0.2 flips of labels are refused sooner, and so are honest devices that have one or two of
    many classes.

    An update's harm is by how much the loss is lower without it, as a share of that of a model that knows
    nothing: the loss with the best biases and scale of the outputs, on pictures also with marks."""
    quarantine_after: int = Field(default=3, ge=0, le=1000)
    """Refusals within `quarantine_window` rounds after which a device is excluded; 0 never excludes one."""
    quarantine_window: int = Field(default=10, ge=1, le=10_000)
    """Rounds in which refusals are counted."""
    quarantine_rounds: int = Field(default=10, ge=1, le=1_000_000)
    """Rounds for which a device is excluded."""
    strict: bool = False
    """`edge-server check` lists what the recipe trusts devices with."""

    @property
    def claims(self) -> Claims:
        return Claims(self.max_examples, self.max_examples_factor)

    @model_validator(mode="after")
    def _window_holds_enough(self) -> "FirewallSettings":
        if self.norm_history > self.norm_window:
            raise ValueError(f"norm-history {self.norm_history} is more than norm-window {self.norm_window}")
        if self.quarantine_after > self.quarantine_window:
            raise ValueError(
                f"quarantine-after {self.quarantine_after} is more than quarantine-window "
                f"{self.quarantine_window}: a round counts once"
            )
        return self


def _parse_labels(labels: str) -> dict[str, str]:
    """The labels in `site=barn,role=camera`."""
    return dict(parse_label(text) for text in labels.split(",") if text.strip())


class SimulationSettings(Settings):
    """How `edge-server simulate` runs devices."""

    engine: str = "local"
    """"local" uses processes of this machine, "ray" a Ray cluster."""
    ray_address: str | None = None
    """The cluster as `host:port`; unset starts one on this machine."""
    workers: int | None = Field(default=None, ge=1, le=1024)
    """Processes; one per core if unset. One is the simulation's own process."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where torch computes."""
    trainer: TrainerName | Annotated[tuple[TrainerName, ...], Field(min_length=1)] = "torch"
    """What trains on the devices: torch, or onnxruntime with step graphs, as on devices without torch; the
    devices of each tier take those of a list in turn."""
    clock: tuple[str, ...] = ("pi-zero-2", "pi-3", "pi-4", "pi-5", "jetson-nano")
    """Boards whose speed the devices have, the weakest first; with an empty list training takes no virtual
    time."""
    memory: bool = False
    """Whether the memory of the boards counts: devices then have the boards of `clock` in turn and state no
    tier; the server places them by memory and speed, and they decline what does not fit."""
    labels: tuple[str, ...] = ()
    """Labels of the devices, in turn: ["site=barn,role=camera", "site=field"] gives every other device the
    same; with an empty list devices have none. `[clients] where` chooses by them.
    """
    dropouts: bool = False
    """Whether devices leave and return as such boards do."""
    hold_out: float = Field(default=0.0, ge=0, lt=1)
    """Share of its examples that a device never trains on."""
    joins_s: tuple[Seconds, ...] = ()
    """Virtual seconds at which each device first joins; the last value holds for all further devices."""
    arrives_s: Mapping[int, Seconds] = Field(default_factory=dict)
    """Virtual seconds at which devices get their examples of a class, by its number from 0, for instance
    { 8 = 3600, 9 = 7200 }; all others are there from the start."""
    until_s: float | None = Field(default=None, gt=0, le=MAX_SECONDS)
    """Virtual seconds after which the run has finished; needed if it has no last round."""

    def labels_of(self, index: int) -> dict[str, str]:
        """The labels of device `index`, counted from 0."""
        return _parse_labels(self.labels[index % len(self.labels)]) if self.labels else {}

    @property
    def trainers(self) -> tuple[TrainerName, ...]:
        """What the devices of each tier train with, in turn."""
        return (self.trainer,) if isinstance(self.trainer, str) else self.trainer

    @model_validator(mode="after")
    def _labels_are_labels(self) -> "SimulationSettings":
        try:
            for text in self.labels:
                _parse_labels(text)
        except ConfigError as error:
            raise ValueError(f"labels: {error}") from error
        return self

    @model_validator(mode="after")
    def _engine_is_known(self) -> "SimulationSettings":
        if self.engine not in ENGINE_NAMES:
            raise ValueError(f"unknown engine '{self.engine}'{nearest(self.engine, ENGINE_NAMES)}")
        if self.ray_address is not None and self.engine != "ray":
            raise ValueError("ray-address is for engine = 'ray'")
        return self

    @model_validator(mode="after")
    def _boards_are_known(self) -> "SimulationSettings":
        if self.memory and not self.clock:
            raise ValueError("memory = true needs the boards whose memory counts: name them in clock")
        try:
            for name in self.clock:
                profile(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self
