"""Metric families of the server; every name begins with `edge_server_` and uses base units."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from edge_server.observability.durations import BOUNDS_S, DurationHistogram

PREFIX = "edge_server_"
Labelled = Mapping[tuple[str, ...], float]  # Values by label values


def gauge(name: str, help: str, value: float | None) -> Iterable[Metric]:
    """One gauge; no family where the value is not known."""
    if value is not None:
        yield GaugeMetricFamily(PREFIX + name, help, value=value)


def gauges(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Iterable[Metric]:
    """Gauges by labels; no family without values."""
    if values:
        family = GaugeMetricFamily(PREFIX + name, help, labels=labels)
        for label_values, value in values.items():
            family.add_metric(label_values, value)
        yield family


def counter(name: str, help: str, value: float) -> Iterable[Metric]:
    """One counter; `_total` is appended to its name."""
    yield CounterMetricFamily(PREFIX + name, help, value=value)


def counters(name: str, help: str, labels: tuple[str, ...], values: Labelled) -> Iterable[Metric]:
    """Counters by labels; `_total` is appended to their name."""
    family = CounterMetricFamily(PREFIX + name, help, labels=labels)
    for label_values, value in values.items():
        family.add_metric(label_values, value)
    yield family


def histogram(
    name: str, help: str, label: str, durations: Mapping[str, DurationHistogram]
) -> Iterable[Metric]:
    """Durations in seconds by one label."""
    family = HistogramMetricFamily(PREFIX + name, help, labels=(label,))
    for label_value, measured in sorted(durations.items()):
        family.add_metric((label_value,), _buckets(measured), measured.seconds)
    yield family


def _buckets(measured: DurationHistogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound in seconds."""
    bounds = [*(f"{bound:g}" for bound in BOUNDS_S), "+Inf"]
    return [(bound, sum(measured.counts[: i + 1])) for i, bound in enumerate(bounds)]
