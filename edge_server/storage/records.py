"""The records of a run for people and programs: a line per round, a line per device, a summary."""

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from pydantic import Field

from edge_client.data.classes import shorten_names
from edge_server.config.units import bytes_text
from schemas.base import Digest, Frozen
from schemas.errors import format_count
from schemas.values import ClassCounts, DeliveryVerdict, KeptFeatures, MetricCounts, Personalisation

BYTES = 4  # of a float32
SHOWN_NAMES = 3  # The most arrays that a row names

# Statistics of all devices' data, as a round has found them.

Column = tuple[float, ...]


class Distribution(Frozen):
    """Figures of values, one per feature, in the units of the data; the variance is that of a population.

    `histogram` has the counts of equal bins from `low` to `high`; its first and last number count the values
    below and above. The first round of statistics has no histogram.
    """

    count: Column
    mean: Column
    variance: Column
    least: Column
    most: Column
    low: Column = ()
    high: Column = ()
    histogram: tuple[Column, ...] = ()


class DataStatistics(Frozen):
    """What `devices` have answered about their `examples`: features, numbers to learn, examples per class.

    `columns` and `outputs` are the names of features and of numbers to learn, where they have some.
    """

    devices: int
    examples: float
    features: Distribution
    targets: Distribution | None = None
    columns: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    labels: Mapping[str, float] = Field(default_factory=dict)


class Rejected(Frozen):
    """A device whose update was refused, `early` before it was compared with all others of the round.

    Early refusals of older runs have no `detail`.
    """

    device: str
    reason: str
    detail: str = ""
    early: bool = Field(default=False, exclude_if=lambda early: not early)


class MeasuredDevice(Frozen):
    """What a device measured in a round without training, on this many examples that it holds out.

    Of masked measurements there is the sum of several `devices` alone. `by_class` are each class's examples,
    and those of them that the model recognises, `counts` those of the learning task.
    """

    tier: int
    examples: int
    devices: int = Field(default=1, exclude_if=lambda count: count == 1)
    metrics: Mapping[str, float] = Field(default_factory=dict)
    loss: float | None = None
    by_class: Mapping[str, ClassCounts] = Field(default_factory=dict, exclude_if=lambda found: not found)
    counts: MetricCounts = ()


class RoundWarning(Frozen):
    """What is wrong with a training, of a `kind`, `about` tiers, devices or a figure; with what to try."""

    kind: str
    about: tuple[str, ...]
    text: str


class RoundRecord(Frozen):
    """One line of `history.jsonl`. Bytes are MQTT payloads that the server itself sent and received, a
    broadcast once; accuracies are 0 to 1.

    `test_*` are the server's, on its own test data; `client_*` are the devices' means on theirs. `*_metrics`
    are all figures of the learning task by name, `test_by_output` one figure for each output by its name
    (`edge_client.data.tasks`), `test_by_class` each class's examples, and those of them that the model
    recognises. `own_metrics` are the means of models that devices keep for themselves, on the
    data of `client_metrics`. `measured` has each device's figures in a round without training, `statistics`
    those of all devices' data in a round that asks for them. In a
    simulation `duration_s` is virtual time, and `virtual_time_s` is how much of it the run has taken so far.
    `exaggerated` has the devices whose claimed figures were reduced, and why. `harm` is by how much each
    update, or each site's sum, has made the loss on test data worse, weighted by its direction
    (`leave_one_out`). `costs` is by how much
    each device's sums have raised the squared error of all others, `suspects` why they are not believed
    (recipe `ridge`). `staleness` is the
    number of rounds by which updates of buffered rounds came late. `one_answer` are the devices whose model
    gives one answer for all examples that they hold out, `trained_accuracy` is what each device's model has
    on these, `dead_channels` the devices in whose model most
    channels of a layer are dead, with their share; `features` are what frozen layers computed of each
    device's examples, and what is kept of it, `trained_on` where one with an accelerator has trained, and why
    there; each of the `warnings` is in one round alone. With
    differential privacy `epsilon` is the total spent so far at `delta`, and `clip` this round's L2 bound. A
    round that has `diverged` made a model with parameters or losses that are not finite. If the round before
    was undone, this one began with the model after round `back_to`, without the devices of `left_out`.
    """

    round: int
    fraction: float
    local_epochs: int
    selected: tuple[str, ...]
    completed: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    exaggerated: Mapping[str, str] = Field(default_factory=dict)
    harm: Mapping[str, float] = Field(default_factory=dict, exclude_if=lambda found: not found)
    costs: Mapping[str, float] = Field(default_factory=dict, exclude_if=lambda found: not found)
    suspects: Mapping[str, str] = Field(default_factory=dict, exclude_if=lambda found: not found)
    uplink_bytes: int
    downlink_bytes: int
    duration_s: float
    virtual_time_s: float | None = None
    train_loss: float | None = None
    test_loss: float | None = None
    test_accuracy: float | None = None
    tier_accuracy: Mapping[int, float] = Field(default_factory=dict)
    client_accuracy: float | None = None
    test_metrics: Mapping[str, float] = Field(default_factory=dict)
    tier_metrics: Mapping[int, Mapping[str, float]] = Field(default_factory=dict)
    client_metrics: Mapping[str, float] = Field(default_factory=dict)
    own_metrics: Mapping[str, float] = Field(default_factory=dict, exclude_if=lambda found: not found)
    test_by_output: Mapping[str, float] = Field(default_factory=dict)
    test_by_class: Mapping[str, ClassCounts] = Field(default_factory=dict, exclude_if=lambda found: not found)
    measured: Mapping[str, MeasuredDevice] = Field(default_factory=dict)
    statistics: DataStatistics | None = Field(default=None, exclude_if=lambda found: found is None)
    staleness: Mapping[str, int] = Field(default_factory=dict)
    one_answer: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)
    trained_accuracy: Mapping[str, float] = Field(default_factory=dict, exclude_if=lambda found: not found)
    dead_channels: Mapping[str, float] = Field(default_factory=dict, exclude_if=lambda found: not found)
    features: Mapping[str, KeptFeatures] = Field(default_factory=dict, exclude_if=lambda found: not found)
    trained_on: Mapping[str, str] = Field(default_factory=dict, exclude_if=lambda found: not found)
    warnings: tuple[RoundWarning, ...] = Field(default=(), exclude_if=lambda found: not found)
    weights: Mapping[str, float] = Field(default_factory=dict)
    attention: Mapping[str, Any] = Field(default_factory=dict)
    epsilon: float | None = None
    delta: float | None = None
    clip: float | None = None
    diverged: bool = False
    back_to: int | None = None
    left_out: tuple[str, ...] = ()


class DeviceRecord(Frozen):
    """The result of a device: its tier, its compact model, its bytes, its figures on held-out data.

    Bytes are what went over its own link, broadcasts and the object store included (`link_bytes.py`). The
    device chose a `variant` of its model, and says `why`; the `verdict` says whether it serves that model or
    still the previous one. `personalisation` is what training on the device's own data has changed. `refused`
    counts its `refusals` by reason; `quarantined_until` is the last round that excludes it. `labels` are the
    operator's and those that the device stated.
    """

    device: str
    tier: int
    ratio: float
    parameters: int | None = None
    macs: int | None = None
    onnx_bytes: int | None = None
    downlink_bytes: int = 0
    uplink_bytes: int = 0
    examples: int = 0
    torch_accuracy: float | None = None
    onnx_accuracy: float | None = None
    max_difference: float | None = None
    latency_ms: float | None = None
    variant: str | None = None
    variant_accuracy: float | None = None
    metrics: Mapping[str, float] = Field(default_factory=dict)
    why: str | None = None
    verdict: DeliveryVerdict | None = None
    personalisation: Annotated[Personalisation | None, Field(exclude_if=lambda found: found is None)] = None
    rounds: int = 0
    refusals: int = 0
    refused: Mapping[str, int] = Field(default_factory=dict)
    quarantined_until: int | None = None
    labels: Mapping[str, str] = Field(default_factory=dict, exclude_if=lambda labels: not labels)

    @property
    def serves_new(self) -> bool | None:
        """Whether the device serves the model of this run; None if it was delivered none."""
        if self.onnx_bytes is None:
            return None
        return self.verdict is None or self.verdict.served


class UndoneRecord(Frozen):
    """A closed round that was undone: the next one began with the model after round `back_to`."""

    round: int
    back_to: int
    left_out: tuple[str, ...] = ()


class WeightsTaken(Frozen):
    """What a file of weights gave a network: `numbers` of all those that the network has (`of`).

    `taken` counts arrays by the first part of their names, `summed` are those of them that read three colours
    in the file and one here, `drawn` says why others were drawn anew, `unused` are arrays of the file without
    a counterpart.
    """

    numbers: int
    of: int
    taken: Mapping[str, int]
    summed: tuple[str, ...] = ()
    drawn: Mapping[str, str] = {}
    unused: tuple[str, ...] = ()

    def in_lines(self) -> tuple[str, ...]:
        """A table: what was taken, what was drawn anew and why, what the file has besides."""
        whole = f"{self.numbers:,} of {self.of:,} numbers"
        arrays = format_count(sum(self.taken.values()), "array")
        rows = [("taken", f"{arrays} in {_some(self.taken)}", whole)]
        if self.summed:
            rows.append(("summed", _some(self.summed), "three colours in the file, one here"))
        for why in dict.fromkeys(self.drawn.values()):
            rows.append(("drawn anew", _some([name for name in self.drawn if self.drawn[name] == why]), why))
        if self.unused:
            rows.append(("left in the file", _some(self.unused), "not of this network"))
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        return tuple(f"  {a:{widths[0]}}  {b:{widths[1]}}  {c}" for a, b, c in rows)


class TrainedShare(Frozen):
    """What devices train of the whole network: `numbers` tier by tier (one for all that train alike) of `of`.

    `frozen` are those that no tier trains: devices receive them once, and send none of them back.
    """

    numbers: tuple[int, ...]
    of: int
    frozen: int

    def in_words(self) -> str:
        counts = " / ".join(f"{count:,}" for count in self.numbers)
        by_tier = " (by tier)" if len(self.numbers) > 1 else ""
        return f"{counts} of {self.of:,} numbers of the network{by_tier}"

    def describe_frozen(self) -> str:
        """The frozen part and its bytes as float32; empty if some tier trains everything."""
        share, sent = f"{self.frozen / self.of:.1%}", bytes_text(BYTES * self.frozen)
        return f"{share} of the network, {sent}, which a device receives once" if self.frozen else ""


def _some(names: Collection[str]) -> str:
    """The first few names, and how many more there are."""
    more = [f"{len(names) - SHOWN_NAMES} more"] if len(names) > SHOWN_NAMES else []
    return ", ".join([*list(names)[:SHOWN_NAMES], *more])


class StartedFrom(Frozen):
    """The origin of a run's first model: the name as `stated`, and its run and round, if known.

    It did not know the `new_classes`; the run does without the `left_classes`. `weights` are those of a file
    that is no run's model.
    """

    stated: str
    state_sha256: Digest
    version: str | None = None
    run: str | None = None
    round: int | None = None
    new_classes: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)
    left_classes: tuple[str, ...] = Field(default=(), exclude_if=lambda names: not names)
    weights: WeightsTaken | None = Field(default=None, exclude_if=lambda taken: taken is None)

    def in_words(self) -> str:
        """`demo-1 (run demo-1, round 4)`, with what differs in its classes."""
        known = [
            f"run {self.run}" if self.run else "",
            f"round {self.round}" if self.round is not None else "",
            f"{self.weights.numbers / self.weights.of:.1%} of the network" if self.weights else "",
        ]
        detail = ", ".join(part for part in known if part)
        return "; ".join(
            [
                f"{self.stated} ({detail})" if detail else self.stated,
                *([f"new: {shorten_names(self.new_classes)}"] if self.new_classes else ()),
                *([f"without: {shorten_names(self.left_classes)}"] if self.left_classes else ()),
            ]
        )


class Summary(Frozen):
    """`summary.json`: the outcome of a run, its results, and the rounds that were `undone`.

    `test_metrics` are the figures of the last tested round, the leading one first; `best_metric` is the best
    of that one over all rounds. `client_metrics` are the devices' means on their own data in the last round,
    `own_metrics` those of models that they keep for themselves. `trained` is None if devices train all of the
    network.

    `downlink_bytes` and `uplink_bytes` are the server's, a broadcast counted once; the devices' sums are
    larger, as each device receives the broadcast.
    """

    federation: str
    run: str
    recipe: str | None
    outcome: str
    detail: str = ""
    rounds: int
    duration_s: float
    model: str
    parameters: int
    test_accuracy: float | None = None
    best_accuracy: float | None = None
    test_metrics: Mapping[str, float] = Field(default_factory=dict)
    best_metric: float | None = None
    client_metrics: Mapping[str, float] = Field(default_factory=dict)
    own_metrics: Mapping[str, float] = Field(default_factory=dict, exclude_if=lambda found: not found)
    uplink_bytes: int = 0
    downlink_bytes: int = 0
    epsilon: float | None = None
    delta: float | None = None
    devices: tuple[DeviceRecord, ...] = ()
    onnx: Mapping[int, str] = Field(default_factory=dict)
    undone: tuple[UndoneRecord, ...] = ()
    started_from: StartedFrom | None = None
    trained: TrainedShare | None = Field(default=None, exclude_if=lambda trained: trained is None)
