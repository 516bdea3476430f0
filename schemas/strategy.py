"""A federation's algorithm as data: one component per concept, with its options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ModelWrapValidatorHandler, model_validator

from schemas.base import Frozen, Settings

Option = bool | int | float | str | tuple[str, ...] | tuple[float, ...] | None


class Component(Frozen):
    """A registered component by name, with options: `"uniform"` or `{name = "prox", mu = 0.1}`."""

    name: str
    options: Mapping[str, Option] = {}

    @model_validator(mode="wrap")
    @classmethod
    def _from_name_or_table(cls, value: Any, handler: ModelWrapValidatorHandler[Component]) -> Component:
        if isinstance(value, str):
            return handler({"name": value})
        if isinstance(value, Mapping) and "options" not in value:
            options = {key.replace("-", "_"): item for key, item in value.items() if key != "name"}
            return handler({"name": value.get("name"), "options": options})
        return handler(value)


class StrategySpec(Settings):
    """One component per concept.

    `uplink` are the codecs of updates, `downlink` those of models (`delta`, `fp16` or `int8`, `zstd`, in this
    order). An empty tuple means no codec, None the default codecs.
    """

    fraction: Component | None = None
    local_epochs: Component | None = Field(default=None)
    selection: Component = Component.model_construct(name="uniform")
    ratio: Component = Component.model_construct(name="by-tier")
    pruner: Component = Component.model_construct(name="index")
    objectives: tuple[Component, ...] = ()
    groups: tuple[Component, ...] = ()
    transforms: tuple[Component, ...] = ()
    weighting: Component = Component.model_construct(name="examples")
    combiner: Component = Component.model_construct(name="mean")
    server_optimizer: Component = Component.model_construct(name="sgd")
    uplink: tuple[Component, ...] | None = None
    downlink: tuple[Component, ...] | None = None


class TrainingSettings(Settings):
    """How a client trains locally."""

    optimizer: str = "sgd"
    learning_rate: float = Field(default=0.01, gt=0)
    momentum: float = Field(default=0.0, ge=0, lt=1)
    weight_decay: float = Field(default=0.0, ge=0)
    batch_size: int = Field(default=32, ge=1, le=65_536)
    local_epochs: int = Field(default=1, ge=0, le=10_000)


class TrainingPlan(TrainingSettings):
    """One device's local training in one round, repeatable by its `seed`.

    `objectives` are added to the plain loss. `participants` devices were asked to train in the round.
    """

    seed: int = 0
    participants: int = Field(default=1, ge=1, le=10_000_000)
    objectives: tuple[Component, ...] = ()
