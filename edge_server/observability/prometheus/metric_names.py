"""Names and families: every metric of the server's own is called `edge_server_...`, in base units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from edge_server.observability.durations import BOUNDS_S, DurationHistogram

PREFIX = "edge_server_"
Labelled = Mapping[tuple[str, ...], float]
"""Values by the values of the labels."""


def gauge(name: str, help: str, value: float | None) -> Iterable[Metric]:
    """One number; nothing where it is not known."""
    if value is not None:
        yield GaugeMetricFamily(PREFIX + name, help, value=value)


def gauges(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Iterable[Metric]:
    """Numbers by labels; nothing where there is none."""
    if values:
        family = GaugeMetricFamily(PREFIX + name, help, labels=labels)
        for said, value in values.items():
            family.add_metric(said, value)
        yield family


def counter(name: str, help: str, value: float) -> Iterable[Metric]:
    """One count; `_total` is added to its name."""
    yield CounterMetricFamily(PREFIX + name, help, value=value)


def counters(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Iterable[Metric]:
    """Counts by labels; `_total` is added to their name."""
    family = CounterMetricFamily(PREFIX + name, help, labels=labels)
    for said, value in values.items():
        family.add_metric(said, value)
    yield family


def histogram(name: str, help: str, label: str, spreads: Mapping[str, DurationHistogram]) -> Iterable[Metric]:
    """Durations by one label."""
    family = HistogramMetricFamily(PREFIX + name, help, labels=(label,))
    for said, spread in sorted(spreads.items()):
        family.add_metric((said,), _buckets(spread), spread.seconds)
    yield family


def _buckets(spread: DurationHistogram) -> list[tuple[str, float]]:
    """How many took at most so long, by bound."""
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    return [(bound, sum(spread.counts[: i + 1])) for i, bound in enumerate(bounds)]
