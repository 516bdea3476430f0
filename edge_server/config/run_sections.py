"""The sections of a federation file on how a run is conducted: federation, clients, firewall, simulation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from edge_server.config.board_profiles import profile
from edge_server.strategy.weighting.claims import Claims
from schemas import errors, selectors
from schemas.base import Name, Settings
from schemas.values import LAST_ROUND, MAX_SITES, Seconds, Seed, TrainerName

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
    every_s: float = Field(default=3600.0, gt=0, le=errors.MAX_SECONDS)
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
    Of detection all devices count, of which the mAP of all pictures is made.
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
    deadline_s: float = Field(default=600.0, gt=0, le=errors.MAX_SECONDS)
    """Seconds until a round closes with the updates that it has."""
    rejoin_s: float = Field(default=15.0, ge=0, le=errors.MAX_SECONDS)
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

    def _check(self) -> None:
        try:
            selectors.parse_where(self.where)
        except errors.ConfigError as error:
            raise ValueError(f"where: {error}") from error
        at_once = self.num_clients if self.concurrency is None else self.concurrency
        if self.mode == "rounds":
            return
        if self.buffer_size > self.num_clients:
            raise ValueError(f"buffer-size {self.buffer_size} is more than num-clients {self.num_clients}")
        if self.buffer_size > at_once:
            raise ValueError(f"buffer-size {self.buffer_size} is more than concurrency {at_once}")
        if self.over_select > 1:
            raise ValueError("over-select is for mode 'rounds': a buffer waits for nobody in particular")


def _norm_bound(firewall: Mapping[str, Any]) -> float:
    """The default of `norm-factor` and `norm-spread` with these settings."""
    return 3.5 if firewall.get("robust") else 5.0


def _harm_bound(firewall: Mapping[str, Any]) -> float:
    """The default of `leave-one-out` with these settings."""
    return 0.2 if firewall.get("robust") else 0.35


class FirewallSettings(Settings):
    """What an update must satisfy beyond its shape, and what repeated refusals lead to."""

    robust: bool = Field(default=False, exclude_if=lambda robust: not robust)
    """Bounds for a fleet in which one device of five may lie: `norm-factor` and `norm-spread` are 3.5 and
    `leave-one-out` is 0.2, where they are not stated. Honest devices that have few of many classes are
    refused more often.
    """
    norm_bound: bool = True
    """Whether the norms of updates are bounded. Where they are compared on test data (`leave-one-out`), one
    beyond the bound counts if it does no more harm than is forgiven in a round."""
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
    """Accuracy, or the task's leading figure, that a single update, or a site's sum, may cost on the server's
    test data; off if unset.
    """
    leave_one_out: float = Field(default_factory=_harm_bound, ge=0, lt=1)
    """Harm that a device's updates may add up to on the server's test data, by default 0.35; 15 % of that
    is forgiven in each round. 0: it is not measured. At 0.2 flips of labels are refused sooner, and so are
    honest devices that have one or two of many classes.

    An update's harm is by which share the loss is higher with it than without: the loss with the best biases
    and scales of the outputs, on pictures also with marks. It counts more against the direction of the other
    updates. Of detection it is not measured: set `canary`."""
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

    def _check(self) -> None:
        if self.norm_history > self.norm_window:
            raise ValueError(f"norm-history {self.norm_history} is more than norm-window {self.norm_window}")
        if self.quarantine_after > self.quarantine_window:
            raise ValueError(
                f"quarantine-after {self.quarantine_after} is more than quarantine-window "
                f"{self.quarantine_window}: a round counts once"
            )


def _parse_labels(labels: str) -> dict[str, str]:
    """The labels in `site=barn,role=camera`."""
    return dict(selectors.parse_label(text) for text in labels.split(",") if text.strip())


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
    cohort: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = Field(
        default="auto", exclude_if=lambda size: size == "auto"
    )
    """Most devices that a worker trains in common steps; they have the same tier and plan. Results differ
    from those of one device at a time by rounding, and repeat to the bit with the same number. "auto" is 1 on
    a processor; on a GPU it follows from the network and the examples, and federation.toml in the run's
    folder has the number. What cannot be trained so is trained one device at a time.
    """
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
    until_s: float | None = Field(default=None, gt=0, le=errors.MAX_SECONDS)
    """Virtual seconds after which the run has finished; needed if it has no last round."""

    def labels_of(self, index: int) -> dict[str, str]:
        """The labels of device `index`, counted from 0."""
        return _parse_labels(self.labels[index % len(self.labels)]) if self.labels else {}

    @property
    def cohort_size(self) -> int:
        """The devices of a cohort; 1 where the number was left to the simulation."""
        return 1 if self.cohort == "auto" else self.cohort

    @property
    def trainers(self) -> tuple[TrainerName, ...]:
        """What the devices of each tier train with, in turn."""
        return (self.trainer,) if isinstance(self.trainer, str) else self.trainer

    def _check(self) -> None:
        try:
            for text in self.labels:
                _parse_labels(text)
        except errors.ConfigError as error:
            raise ValueError(f"labels: {error}") from error
        if self.engine not in ENGINE_NAMES:
            raise ValueError(f"unknown engine '{self.engine}'{errors.nearest(self.engine, ENGINE_NAMES)}")
        if self.ray_address is not None and self.engine != "ray":
            raise ValueError("ray-address is for engine = 'ray'")
        if self.engine != "local" and self.cohort not in (1, "auto"):
            raise ValueError("cohort is for engine = 'local'")
        if self.memory and not self.clock:
            raise ValueError("memory = true needs the boards whose memory counts: name them in clock")
        for name in self.clock:
            profile(name)
