"""Metrics of a run: its progress, its model's accuracy, its privacy budget."""

from collections.abc import Iterable, Iterator

from prometheus_client.core import Metric

from edge_server.observability.prometheus.metric_names import Labelled, counter, gauge, gauges
from edge_server.observability.snapshot import Snapshot
from edge_server.rounds.state import Phase
from edge_server.storage.records import RoundRecord


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


def _last_round(history: tuple[RoundRecord, ...]) -> Iterable[Metric]:
    """Figures of the last closed round; a missing figure is taken from the newest round that has it."""

    def last(name: str) -> float | None:
        found = (getattr(record, name) for record in reversed(history))
        return next((float(value) for value in found if value is not None), None)

    yield from gauge("last_round_duration_seconds", "Duration of the last closed round.", last("duration_s"))
    yield from gauge("train_loss", "Loss on the devices, of the last closed round.", last("train_loss"))
    yield from gauge("test_loss", "Loss on the server's test data.", last("test_loss"))
    yield from gauge(
        "test_accuracy_ratio", "Accuracy on the server's test data, 0 to 1.", last("test_accuracy")
    )
    yield from gauge(
        "client_accuracy_ratio", "Devices' mean on their own data, 0 to 1.", last("client_accuracy")
    )
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
    yield from gauge("privacy_epsilon", "Epsilon spent by all rounds so far.", last("epsilon"))
    yield from gauge("privacy_delta", "Delta at which epsilon is computed.", last("delta"))
