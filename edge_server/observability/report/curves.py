"""The charts of a run: accuracy, loss, bytes and time by round."""

from collections.abc import Callable, Sequence

from edge_client.data.tasks.learning_task import Metric
from edge_server.config.units import bytes_text
from edge_server.observability.figures import leading_metric
from edge_server.observability.report.charts import Chart, Series
from edge_server.storage.records import RoundRecord


def run_charts(history: Sequence[RoundRecord]) -> tuple[Chart, ...]:
    return (accuracy_chart(history), loss_chart(history), bytes_chart(history), time_chart(history))


def accuracy_chart(history: Sequence[RoundRecord]) -> Chart:
    """The leading metric of the global model and of each tier's sub-model on the server's test data.

    Without test data on the server, the devices' mean on their own data.
    """
    metric = leading_metric(history)
    tiers = sorted({tier for record in history for tier in record.tier_metrics})
    series = [curve("global", history, lambda record: record.test_metrics.get(metric.name))]
    series += [curve(f"tier {tier}", history, _tier(tier, metric)) for tier in tiers]
    title, unit = f"Test {metric.name}", f"{metric.name} (%)" if metric.share else metric.name
    if not any(candidate.known_points for candidate in series):
        series = [curve("on devices", history, lambda record: record.client_metrics.get(metric.name))]
        title = f"Devices' own data: {metric.name}"
    text, highest = (percent, 1.0) if metric.share else (number, None)
    return Chart("accuracy", title, unit, tuple(series), text, highest=highest)


def loss_chart(history: Sequence[RoundRecord]) -> Chart:
    series = (
        curve("training", history, lambda record: record.train_loss),
        curve("test", history, lambda record: record.test_loss),
    )
    return Chart("loss", "Loss", "loss", series, lambda y: f"{y:.3g}", from_zero=True)


def bytes_chart(history: Sequence[RoundRecord]) -> Chart:
    """Bytes that the server sent to devices (down) and received from them (up) in each round."""
    series = (
        curve("down", history, lambda record: record.downlink_bytes),
        curve("up", history, lambda record: record.uplink_bytes),
    )
    return Chart("bytes", "Bytes per round, at the server", "bytes", series, bytes_text, from_zero=True)


def time_chart(history: Sequence[RoundRecord]) -> Chart:
    series = (curve("duration", history, lambda record: record.duration_s),)
    return Chart("time", "Time per round", "time (s)", series, lambda y: f"{y:.3g}", from_zero=True)


def curve(label: str, history: Sequence[RoundRecord], value: Callable[[RoundRecord], float | None]) -> Series:
    return Series(label, tuple((record.round, value(record)) for record in history))


def percent(accuracy: float) -> str:
    """An accuracy as an axis label, in percent with up to four digits."""
    return f"{100 * accuracy:.4g}%"


def number(value: float) -> str:
    return f"{value:.3g}"


def _tier(tier: int, metric: Metric) -> Callable[[RoundRecord], float | None]:
    return lambda record: record.tier_metrics.get(tier, {}).get(metric.name)
