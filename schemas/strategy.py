"""A federation's algorithm as data: one component per concept, with its options."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from schemas.base import Frozen, Settings
from schemas.values import FeatureType, Seed, Text

Option = bool | int | float | str | tuple[str, ...] | tuple[float, ...] | None


class Component(Frozen):
    """A registered component by name, with options: `"uniform"` or `{name = "prox", mu = 0.1}`."""

    name: str
    options: Mapping[str, Option] = {}

    @model_validator(mode="wrap")
    @classmethod
    def _from_name_or_table(cls, value: Any, handler: "ModelWrapValidatorHandler[Component]") -> "Component":
        if isinstance(value, str):
            return handler({"name": value})
        if isinstance(value, Mapping) and "options" not in value:
            options = {key.replace("-", "_"): item for key, item in value.items() if key != "name"}
            return handler({"name": value.get("name"), "options": options})
        return handler(value)


class PersonalPruning(Frozen):
    """The device prunes `ratios` of each channel group itself, by scores of its channels.

    The training's objectives score them, and the device prunes what it has trained. With `scored_by` it
    prunes first: this objective scores the received network in forward passes, and only what is left is
    trained.
    """

    ratios: Mapping[str, Annotated[float, Field(ge=0, lt=1)]]
    scored_by: Annotated[Component | None, Field(exclude_if=lambda objective: objective is None)] = None


MAX_RANK = 1024


class Adapters(Frozen):
    """Arrays whose change is the product of two factors of at most this rank (LoRA, Hu et al. 2022).

    Each is the weight of a linear layer, or of a convolution whose kernel is one position.
    """

    rank: int = Field(ge=1, le=MAX_RANK)
    arrays: Annotated[tuple[Text, ...], Field(min_length=1)]


class StrategySpec(Settings):
    """One component, or a list of components, per concept."""

    fraction: Component | None = None
    """Share of the devices that a round asks, by round; `[clients] fraction` if unset."""
    local_epochs: Component | None = Field(default=None)
    """Epochs of local training, by round; `[training] local-epochs` if unset."""
    first_round: Component | None = Field(default=None, exclude_if=lambda first: first is None)
    """"ridge" or "class-means": in the first round devices train nothing, and the server solves the head of
    the network from sums of their features; further rounds train as the recipe says. Its options are those
    of the group of this name. Made for rounds that train the head or the last layers (`[training] train`):
    where everything is trained, the head is soon another one. All tiers begin with the one head.
    """
    selection: Component = Component.model_construct(name="uniform")
    """Which devices a round asks."""
    ratio: Component = Component.model_construct(name="by-tier")
    """The pruning ratio of each device."""
    pruner: Component = Component.model_construct(name="index")
    """Which channels a device keeps."""
    own: Component | None = Field(default=None, exclude_if=lambda own: own is None)
    """Which layers each device keeps for itself; none if unset."""
    objectives: tuple[Component, ...] = ()
    """What local training adds to the loss of the data."""
    groups: tuple[Component, ...] = ()
    """Arrays that travel with the model."""
    transforms: tuple[Component, ...] = ()
    """What happens to updates before they are combined, in this order."""
    weighting: Component = Component.model_construct(name="examples")
    """How much each update counts."""
    combiner: Component = Component.model_construct(name="mean")
    """How updates become one."""
    server_optimizer: Component = Component.model_construct(name="sgd")
    """How the combined update changes the global model."""
    uplink: tuple[Component, ...] | None = None
    """Codecs of updates, in this order: `delta`, `top-k`, `fp16` or `int8`, `zstd`. An empty list sends
    float32.
    """
    downlink: tuple[Component, ...] | None = None
    """Codecs of models, in this order: `delta`, `fp16` or `int8`, `zstd`. An empty list sends float32."""

    @model_validator(mode="after")
    def _first_round_has_its_parts(self) -> "StrategySpec":
        """Name the objective and the group of the first round, where they are not named yet."""
        first = self.first_round
        if first is None:
            return self
        parts = {
            "objectives": Component(name=first.name),
            "groups": first.model_copy(update={"options": {**first.options, "keep": False}}),
        }
        for key, part in parts.items():
            named = getattr(self, key)
            if part.name not in {component.name for component in named}:
                self.__dict__[key] = (*named, part)
        return self


Augmentation = Literal["flip", "scale", "colour", "mosaic"]
Mirror = Literal["left-right", "up-down"]


class TrainingSettings(Settings):
    """How a device trains locally."""

    optimizer: str = "sgd"
    """"sgd", "adam" or "adamw"."""
    learning_rate: float = Field(default=0.01, gt=0)
    """Step size of the optimizer."""
    momentum: float = Field(default=0.0, ge=0, lt=1)
    """Momentum of SGD."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Weight decay of the optimizer."""
    sam_radius: float = Field(default=0.0, ge=0, le=100, exclude_if=lambda radius: not radius)
    """Radius of sharpness-aware minimisation (SAM): a step takes its gradient at weights that were moved by
    this length along the batch's gradient. An epoch of such steps counts as two. The first epochs of a round
    have them, and the last one or two are plain: with fewer than three epochs all are. 0 makes all plain.
    """
    warm_up_steps: int = Field(default=0, ge=0, le=10_000, exclude_if=lambda steps: not steps)
    """Steps of each round over which the learning rate rises linearly to `learning-rate`. By default 10
    with Adam and AdamW, whose first steps are as large where a gradient is small, and 0 with SGD.
    """
    rate_by_width: bool = Field(default=False, exclude_if=lambda by_width: not by_width)
    """With Adam and AdamW a step on the share r of the network's channels has the learning rate over r, but
    at most 0.003. Their steps are as large in every weight, so fewer channels change the outputs less (Yang
    and Hu 2022).
    """
    augment: tuple[Augmentation, ...] = Field(default=(), exclude_if=lambda names: not names)
    """Random changes of pictures, which no epoch sees the same again, one after the other: "flip" mirrors,
    "scale" magnifies and moves by up to a half, "colour" changes saturation, contrast and brightness,
    "mosaic" joins four pictures. Boxes move along. Frozen layers then run in every step.
    """
    mirror: tuple[Mirror, ...] = Field(default=(), exclude_if=lambda axes: not axes)
    """Mirror images that devices train on beside their pictures: "left-right", "up-down". With both there are
    four of each picture, and an epoch has four times the steps. Boxes move along. Frozen layers run once per
    image, not in every step. It is for what has no left or right, or no top: cells, aerial photos.
    """
    batch_size: int = Field(default=32, ge=1, le=65_536)
    """Examples per step."""
    local_epochs: int = Field(default=1, ge=0, le=10_000)
    """Epochs per round."""
    feature_cache_mb: int = Field(default=256, ge=0, le=10**6, exclude_if=lambda room: room == 256)
    """Megabytes in which a device keeps what frozen layers make of its examples, so that they run once per
    example and not in every round; 0 keeps nothing. The results are the same. Of what does not fit, frozen
    layers run once per round.
    """
    feature_type: FeatureType = Field(default="fp32", exclude_if=lambda kind: kind == "fp32")
    """The numbers of what frozen layers make of an example: "fp32", or "fp16", which rounds them and takes
    half the room.
    """

    @property
    def copies(self) -> int:
        """Training examples per example of a device."""
        return int(2 ** len({*self.mirror}))


class TrainingPlan(TrainingSettings):
    """One device's local training in one round, repeatable by its `seed`.

    `objectives` are added to the plain loss. `participants` devices were asked to train in the round.
    """

    seed: Seed = 0
    participants: int = Field(default=1, ge=1, le=10_000_000)
    objectives: tuple[Component, ...] = ()
