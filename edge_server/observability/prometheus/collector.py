"""The metrics of a run or of a rollout, computed from its last snapshot or state at each scrape."""

import contextlib
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from edge_server.observability.prometheus.devices import (
    Labelled,
    counter,
    counters,
    device_families,
    gauge,
    gauges,
    histogram,
    readings_of_run,
)
from edge_server.observability.snapshot import ServerParts, Snapshot, Workload
from edge_server.releases.rollout.state import Rollout, RolloutPhase
from edge_server.releases.rollout.target import TargetStatus
from edge_server.rounds.participant import Status
from edge_server.rounds.state import Phase
from edge_server.storage.records import RoundRecord
from schemas.errors import Reason

STATES = ("offline", "idle", "quarantined", "incompatible", "fetching", "exporting", *map(str, Status))
OTHER = "other"  # Label for unknown words: texts that devices send must not become labels


class RunCollector(Collector):
    """Watches a run and collects its metrics; there are none before the first snapshot.

    `clock` returns seconds since 1970, `out` is the run folder. With `devices` each device has gauges of its
    own. `show` and `collect` have their own threads.
    """

    def __init__(self, out: Path, clock: Callable[[], float] = time.time, *, devices: bool = False) -> None:
        self._out, self._clock, self._devices = out, clock, devices
        self._last: Snapshot | None = None
        self._closed, self._closed_at = 0, clock()

    def show(self, snapshot: Snapshot) -> None:
        if len(snapshot.history) != self._closed:
            self._closed, self._closed_at = len(snapshot.history), self._clock()
        self._last = snapshot

    def collect(self) -> Iterator[Metric]:
        last = self._last
        if last is None:
            return
        yield from run_families(last, closed_at=self._closed_at)
        yield from fleet_families(last)
        if self._devices:
            yield from device_families(readings_of_run(last.federation, last.devices))
        yield from work_families(last.load)
        with contextlib.suppress(OSError):
            disk = shutil.disk_usage(self._out)
            yield from disk_families(disk.free, disk.total)


def run_registry(collector: Collector) -> CollectorRegistry:
    """The collector's metrics, and those of this process: memory, processor time, open files, Python."""
    registry = CollectorRegistry()
    # Registered without `describe`: which metrics there are depends on the state of the run.
    registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    return registry


def exposition(registry: CollectorRegistry, accept: str = "") -> tuple[str, bytes]:
    """Content type and body: text format 0.0.4, or the format that the header `Accept` asks for."""
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


def run_families(snapshot: Snapshot, *, closed_at: float) -> Iterator[Metric]:
    """The run's metric families.

    `closed_at` (seconds since 1970) is when a round was last seen closed, or when this process began.
    """
    about: Labelled = {(snapshot.federation, snapshot.run): 1.0}
    yield from gauges("run_info", "The run's federation and name.", ("federation", "run"), about)
    phases: Labelled = {(str(phase),): float(phase == snapshot.phase) for phase in Phase}
    yield from gauges("phase", "1 for the phase that the run is in.", ("phase",), phases)
    yield from gauge("broker_connected", "Whether there is a connection to the broker.", not snapshot.no_link)
    yield from gauge("round", "Number of the round that is under way.", snapshot.round)
    yield from gauge("planned_rounds", "Rounds after which the run is over.", snapshot.rounds)
    yield from counter("rounds_closed", "Rounds aggregated.", len(snapshot.history))
    yield from gauge("round_closed_timestamp_seconds", "When a round was last closed, or began.", closed_at)
    yield from gauge("round_limit_seconds", "[clients] deadline-s of a round.", snapshot.load.deadline_s)
    yield from gauge("virtual_time_seconds", "The simulation's own time.", snapshot.virtual_s)
    yield from _last_round(snapshot.history)
    yield from gauge("privacy_epsilon_budget", "Epsilon that the run may spend.", snapshot.load.budget)


FIGURES = (
    ("last_round_duration_seconds", "Duration of the last closed round.", "duration_s"),
    ("train_loss", "Loss on the devices, of the last closed round.", "train_loss"),
    ("test_loss", "Loss on the server's test data.", "test_loss"),
    ("test_accuracy_ratio", "Accuracy on the server's test data, 0 to 1.", "test_accuracy"),
    ("client_accuracy_ratio", "Devices' mean on their own data, 0 to 1.", "client_accuracy"),
    ("privacy_epsilon", "Epsilon spent by all rounds so far.", "epsilon"),
    ("privacy_delta", "Delta at which epsilon is computed.", "delta"),
)


def _last_round(history: tuple[RoundRecord, ...]) -> Iterable[Metric]:
    """Figures of the last closed round; a missing figure is taken from the newest round that has it."""
    for name, help, field in FIGURES:
        found = (getattr(record, field) for record in reversed(history))
        yield from gauge(name, help, next((float(value) for value in found if value is not None), None))
    tiers = next((record.tier_accuracy for record in reversed(history) if record.tier_accuracy), {})
    yield from gauges(
        "tier_test_accuracy_ratio",
        "Accuracy of a tier's sub-model on the server's test data, 0 to 1.",
        ("tier",),
        {(str(tier),): accuracy for tier, accuracy in sorted(tiers.items())},
    )
    figures = next((record.test_metrics for record in reversed(history) if record.test_metrics), {})
    yield from gauges(
        "test_metric",
        "A figure of the learning task on the server's test data; shares are 0 to 1.",
        ("metric",),
        {(name,): value for name, value in figures.items()},
    )


# No label names a device, as each name would be a series of its own.


def fleet_families(snapshot: Snapshot) -> Iterator[Metric]:
    """Devices by state and tier, outcomes of updates, refusals by reason."""
    counted = Counter((known_or_other(view.state, STATES), view.tier) for view in snapshot.devices)
    tiers = sorted({view.tier for view in snapshot.devices})
    states = (*STATES, *([OTHER] if any(state == OTHER for state, _ in counted) else []))
    # Zeros are sent too: a missing series would look as if its last value still held.
    devices: Labelled = {
        (state, str(tier)): float(counted[state, tier]) for state in states for tier in tiers
    }
    yield from gauges("devices", "Devices by state and tier.", ("state", "tier"), devices)
    over_links: Counter[tuple[str, ...]] = Counter()
    for view in snapshot.devices:
        over_links["received", str(view.tier)] += view.downlink_bytes
        over_links["sent", str(view.tier)] += view.uplink_bytes
    yield from gauges(
        "device_link_bytes",
        "Bytes over the devices' own links, by tier; a broadcast counts for each device that received it.",
        ("direction", "tier"),
        {labels: float(size) for labels, size in over_links.items()},
    )
    yield from counters("updates", "Updates of closed rounds by outcome.", ("outcome",), _updates(snapshot))
    refusals: dict[tuple[str, ...], float] = {(str(reason),): 0.0 for reason in Reason}
    for reason, count in snapshot.load.refusals.items():
        labels = (known_or_other(reason, tuple(Reason)),)
        refusals[labels] = refusals.get(labels, 0.0) + count
    yield from counters("refusals", "Refused messages of devices, by reason.", ("reason",), refusals)


def known_or_other(word: str, words: tuple[str, ...]) -> str:
    """The word if it is in `words`, else `OTHER`."""
    return word if word in words else OTHER


def _updates(snapshot: Snapshot) -> dict[tuple[str, ...], float]:
    history = snapshot.history
    return {
        ("counted",): sum(len(record.completed) for record in history),
        ("missed",): sum(len(record.dropped) for record in history),
        ("refused",): sum(len(record.rejected) for record in history),
    }


def work_families(load: Workload) -> Iterator[Metric]:
    yield from counter("received_bytes", "MQTT payloads that the server received.", load.uplink_bytes)
    yield from counter(
        "sent_bytes", "MQTT payloads that the server sent; a broadcast counts once.", load.downlink_bytes
    )
    yield from counter("dropped_messages", "Messages dropped because the inbox was full.", load.unheard)
    queues: Labelled = {
        ("inbox",): float(load.inbox),
        ("jobs",): float(load.jobs),
        ("uploads",): float(load.uploads),
        ("outgoing",): float(load.outgoing),
    }
    yield from gauges(
        "queue_length",
        "Events for the server, jobs to run, uploads waiting for their turn, messages for the broker.",
        ("queue",),
        queues,
    )
    yield from _part_families(load.parts)
    yield from histogram(
        "phase_duration_seconds",
        "How long phases of rounds lasted; virtual in a simulation.",
        "phase",
        load.phases,
    )
    yield from histogram(
        "work_duration_seconds",
        "How long jobs took; closing a round includes aggregating and testing it.",
        "work",
        load.work,
    )


def _part_families(parts: ServerParts | None) -> Iterator[Metric]:
    """What serves the run besides the server's own process; nothing in a simulation."""
    if parts is None:
        return
    yield from gauge("lease_epoch", "Epoch of the lease; a takeover raises it.", parts.epoch)
    yield from gauge("standby_ready", "Whether a standby is up to date.", bool(parts.standby))
    processes: Labelled = {("receiver",): float(parts.receivers), ("aggregator",): float(parts.aggregators)}
    gateways: Labelled = {(site,): float(there) for site, there in parts.gateways.items()}
    yield from gauges("gateway_connected", "1 for a site whose gateway is connected.", ("site",), gateways)
    yield from gauges("processes", "Processes besides the server's own that run now.", ("kind",), processes)


def disk_families(free: int, size: int) -> Iterator[Metric]:
    yield from gauge("disk_free_bytes", "Free bytes on the disk that holds the run folder.", free)
    yield from gauge("disk_size_bytes", "Size of the disk that holds the run folder.", size)


class RolloutCollector(Collector):
    """Keeps a rollout's newest state and collects its metrics."""

    def __init__(self) -> None:
        self._last: tuple[Rollout, str] | None = None

    def show(self, rollout: Rollout, no_link: str) -> None:
        """Keep the newest state; `no_link` says why there is no connection to the broker."""
        self._last = rollout, no_link

    def collect(self) -> Iterator[Metric]:
        if self._last is not None:
            yield from rollout_families(*self._last)


def rollout_families(rollout: Rollout, no_link: str) -> Iterator[Metric]:
    """The rollout's metric families; no label names a device."""
    about: Labelled = {(rollout.federation, rollout.version): 1.0}
    yield from gauges(
        "rollout_info", "The rollout's federation and version.", ("federation", "version"), about
    )
    yield from gauge("broker_connected", "Whether there is a connection to the broker.", not no_link)
    phases: Labelled = {(str(phase),): float(phase is rollout.phase) for phase in RolloutPhase}
    yield from gauges("rollout_phase", "1 for the phase that the rollout is in.", ("phase",), phases)
    yield from gauge("rollout_groups", "Groups of devices, the canary included.", rollout.groups)
    opened = min(rollout.opened + 1, rollout.groups)
    yield from gauge("rollout_open_groups", "Groups that have been opened.", opened)
    counted = Counter((target.status, target.tier) for target in rollout.targets.values())
    tiers = sorted({target.tier for target in rollout.targets.values()})
    devices: Labelled = {
        (str(status), str(tier)): float(counted[status, tier]) for status in TargetStatus for tier in tiers
    }
    yield from gauges("rollout_devices", "Devices by status and tier.", ("status", "tier"), devices)
