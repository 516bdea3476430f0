"""The sections of a federation file, each checked by itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from edge_client.data.partition import parse_partition
from edge_client.models.registry import entry
from edge_client.pruning.channel_selection import mean_ratio
from edge_server.config.board_profiles import profile
from edge_server.config.errors import UNNAMED
from edge_server.strategy.weighting.claims import Claims
from schemas.base import Settings
from schemas.errors import ConfigError, nearest
from schemas.names import Name
from schemas.values import ClassName

ENGINE_NAMES = ("local", "ray")
"""What may do the work of simulated devices; `simulation.engines` has an entry for each."""


class RecipeInfo(Settings):
    """What a recipe says of itself."""

    name: str
    summary: str
    citation: str


def _as_a_word(value: object) -> object:
    """The word for the yes or no that stood here before."""
    return {True: "trial", False: "none"}[value] if isinstance(value, bool) else value


class FederationSettings(Settings):
    """The run as a whole.

    `deliver` says what becomes of the model at the end. "trial": every device exports its own ONNX model, and
    serves it unless it is worse than the one that it serves already; "force": it serves it in any case;
    "none": no device gets one, and a rollout may bring it to them later. `true` and `false`, as files had it
    before, mean "trial" and "none". The server exports a model per tier, and enters it in the registry, in
    each case. With `deliver_every` the same happens after every so many rounds as well (0: only at the end).
    The server tests the full model in every round that `evaluate-every` divides, and then every tier's too if
    `evaluate-tiers-every` divides it; both after the last round. The updates of as many of the last rounds as
    `replay_mb` megabytes hold are kept, so that `edge-server replay` can compute their aggregates again. It
    signs tasks and models with the Ed25519 key at `signing-key` (PEM, mode 0600, made where there is none) or
    else with one made for the run. Where one core is too few, `receivers` processes of their own take the
    uploads' chunks (0: the server does). With `roll_back` a run whose devices can no longer train what
    the last round made goes back to the model before that round, leaves out those whose updates made it, and
    fails only if that does not help.
    """

    name: Name = "federation"
    seed: int = Field(default=0, ge=0)
    rounds: int = Field(default=10, ge=1, le=1_000_000)
    evaluate_every: int = Field(default=1, ge=1)
    evaluate_tiers_every: int = Field(default=1, ge=1)
    deliver: Annotated[Literal["trial", "force", "none"], BeforeValidator(_as_a_word)] = "trial"
    deliver_every: int = Field(default=0, ge=0)
    replay_mb: int = Field(default=1000, ge=0)
    receivers: int = Field(default=0, ge=0, le=64)
    signing_key: Path | None = None
    roll_back: bool = True


class ClientSettings(Settings):
    """Who takes part in a round, and how long it may take (seconds).

    The run begins once `start_clients` are there (all `num_clients` unless stated). `over_select` times as
    many devices are asked as a round needs. In `buffered` mode a round closes with `buffer_size` updates
    that lag at most `max_staleness` rounds behind, and `concurrency` devices (all) train at once.
    """

    mode: Literal["rounds", "buffered"] = "rounds"
    num_clients: int = Field(default=5, ge=1)
    fraction: float = Field(default=1.0, gt=0, le=1)
    start_clients: int | None = Field(default=None, ge=1)
    min_clients: int = Field(default=1, ge=1)
    quorum: float = Field(default=0.5, ge=0, le=1)
    deadline_s: float = Field(default=600.0, gt=0)
    rejoin_s: float = Field(default=15.0, ge=0)
    uploads_at_once: int = Field(default=32, ge=1)
    over_select: float = Field(default=1.0, ge=1)
    buffer_size: int = Field(default=10, ge=1)
    max_staleness: int = Field(default=20, ge=0)
    concurrency: int | None = Field(default=None, ge=1)

    @model_validator(mode="after")
    def _buffer_can_be_filled(self) -> ClientSettings:
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
    """The global network; shape and classes come from `[data]` where they are not given.

    `from` names a model to start from: a version in the registry, a folder `models/round-NNNN` or its
    state.safetensors, or the folder of a run, whose last model is taken. It must be of the same network and
    as many classes. A run that goes on does not read it again.
    """

    name: str = "two-nn"
    num_classes: int | None = Field(default=None, ge=1)
    input_shape: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    from_: str | None = Field(default=None, alias="from", min_length=1)

    @model_validator(mode="after")
    def _model_is_known(self) -> ModelSettings:
        try:
            entry(self.name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


class DataSettings(Settings):
    """The data that the server tests on, and how simulated or local devices share it.

    Of `source` a server tests on the official test part, or on all where it has none; `npz:PATH#test` is the
    fifth of every class that devices with `npz:PATH#train` leave alone, as in simulations.
    `classes` are the names of all classes, in the order of the model's outputs. Without them they are those
    of `source`, else those that devices state before the first round. With `test_samples` the server tests
    on so many of its examples, always the same ones.
    """

    classes: Annotated[tuple[ClassName, ...], Field(min_length=1, max_length=10_000)] | None = None
    source: str | None = None
    data_root: Path | None = None
    partition: str = "iid"
    alpha: float | None = Field(default=None, gt=0)
    shards: int | None = Field(default=None, ge=1)
    samples_per_client: int | None = Field(default=None, ge=1)
    test_samples: int | None = Field(default=None, ge=1)

    @property
    def partition_spec(self) -> str:
        """The partition with its number, as `edge-client --partition` takes it."""
        number = {"dirichlet": self.alpha, "shards": self.shards}.get(self.partition)
        return self.partition if number is None else f"{self.partition}({number})"

    @model_validator(mode="after")
    def _classes_differ(self) -> DataSettings:
        if twice := [name for name, count in Counter(self.classes or ()).items() if count > 1]:
            raise ValueError(f"classes: '{twice[0]}' is named more than once: name each class once")
        return self

    @model_validator(mode="after")
    def _partition_is_known(self) -> DataSettings:
        try:
            parse_partition(self.partition_spec)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self


_Share = Annotated[float, Field(ge=0, lt=1)]
_Ratio = Annotated[
    Annotated[_Share, Tag(f"{UNNAMED}number")] | Annotated[Mapping[str, _Share], Tag(f"{UNNAMED}table")],
    Discriminator(lambda value: f"{UNNAMED}{'table' if isinstance(value, Mapping) else 'number'}"),
]


class TierSettings(Settings):
    """Capability tiers, the weakest first: tier n trains with pruning ratio `ratios[n - 1]`.

    A ratio may be a table per layer, `{"layer1.*" = 0.2, "layer3.*" = 0.6}` (ATTENDING, appendix H):
    the first glob that matches counts, and what none matches stays whole.
    `keep_multiple`: as many channels of a group stay as the ratio says, rounded up to a multiple of this. On
    many processors onnxruntime is fast at multiples of 8 only; 1 is the papers' exact counts.
    """

    ratios: Annotated[tuple[_Ratio, ...], Field(min_length=1)] = (
        0.7,
        0.5,
        0.3,
        0.1,
        0.0,
    )
    keep_multiple: int = Field(default=1, ge=1, le=256)

    @property
    def levels(self) -> tuple[float, ...]:
        """One number per tier: a table's mean (ATTENDING, eq. 10)."""
        return tuple(mean_ratio(ratio) for ratio in self.ratios)


class FirewallSettings(Settings):
    """What an update may be before it counts, beyond its shape; and what repeated refusals lead to.

    `norm_bound`: an update may be as large as the median of the last `norm_window` norms times `norm_factor`,
    or as that median plus `norm_spread` standard deviations (by MAD), whichever is more. Until there are
    `norm_history` norms it may be `norm_first` times the model itself.
    `canary`: the accuracy on the server's test data that an update alone may cost (off unless stated).
    A device counts with at most `max_examples` examples, and with at most `max_examples_factor` times the
    median of the others, or that median and ten standard deviations (by MAD). With `strict`
    `edge-server check` says what a recipe takes on trust.
    A device that is refused in `quarantine_after` of `quarantine_window` rounds is left out of the next
    `quarantine_rounds`; after 0 no device is.
    """

    norm_bound: bool = True
    norm_window: int = Field(default=100, ge=3, le=10_000)
    norm_history: int = Field(default=10, ge=3)
    norm_factor: float = Field(default=10.0, ge=1)
    norm_spread: float = Field(default=10.0, ge=1)
    norm_first: float = Field(default=100.0, gt=0)
    max_examples: int = Field(default=10_000_000, ge=1, le=10**12)
    max_examples_factor: float = Field(default=5.0, ge=1)
    canary: float | None = Field(default=None, gt=0, lt=1)
    quarantine_after: int = Field(default=3, ge=0, le=1000)
    quarantine_window: int = Field(default=10, ge=1, le=10_000)
    quarantine_rounds: int = Field(default=10, ge=1, le=1_000_000)
    strict: bool = False

    @property
    def claims(self) -> Claims:
        """The bounds of what devices say of themselves."""
        return Claims(self.max_examples, self.max_examples_factor)

    @model_validator(mode="after")
    def _window_holds_enough(self) -> FirewallSettings:
        if self.norm_history > self.norm_window:
            raise ValueError(f"norm-history {self.norm_history} is more than norm-window {self.norm_window}")
        if self.quarantine_after > self.quarantine_window:
            raise ValueError(
                f"quarantine-after {self.quarantine_after} is more than quarantine-window "
                f"{self.quarantine_window}: a round counts once"
            )
        return self


class SimulationSettings(Settings):
    """How `edge-server simulate` runs devices that are not there.

    `workers`: processes, as many as cores unless stated; `clock`: the boards whose speed the devices have,
    the weakest first (none: whatever they do takes no time); `dropouts`: they come and go as such boards do;
    `hold_out`: the share of its examples that a device never trains on. `joins_s`: when each device first
    comes, in virtual seconds, the last one's time for all that follow; they come and stay.
    `ray_address`: the cluster of the engine `ray`, as `host:port`; without it, one begun on this machine.
    """

    engine: str = "local"
    ray_address: str | None = None
    workers: int | None = Field(default=None, ge=1, le=1024)
    device: Literal["cpu", "cuda"] = "cpu"
    clock: tuple[str, ...] = ("pi-zero-2", "pi-3", "pi-4", "pi-5", "jetson-nano")
    dropouts: bool = False
    hold_out: float = Field(default=0.0, ge=0, lt=1)
    joins_s: tuple[Annotated[float, Field(ge=0)], ...] = ()

    @model_validator(mode="after")
    def _engine_is_known(self) -> SimulationSettings:
        if self.engine not in ENGINE_NAMES:
            raise ValueError(f"unknown engine '{self.engine}'{nearest(self.engine, ENGINE_NAMES)}")
        if self.ray_address is not None and self.engine != "ray":
            raise ValueError("ray-address is for engine = 'ray'")
        return self

    @model_validator(mode="after")
    def _boards_are_known(self) -> SimulationSettings:
        try:
            for name in self.clock:
                profile(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return self
