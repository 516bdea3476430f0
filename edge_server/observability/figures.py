"""The figures of a run's learning task, which lead its tables and charts: accuracy, or another metric."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

from edge_client.data.tasks import registry, words
from edge_client.data.tasks.learning_task import LearningTask, Metric
from edge_server.config.units import UNKNOWN, clean, counted_text, figure_text, leading_text
from edge_server.storage.records import DeviceRecord, RoundRecord, Summary
from schemas.values import Personalisation

ACCURACY = registry.CLASSIFICATION.metrics[0]
OWN_DATA = "own data"
SLIGHT_LOSS = 0.02  # held-out examples are few: a smaller loss of accuracy by delivery is chance


def leading_metric(history: Sequence[RoundRecord], task: LearningTask = registry.CLASSIFICATION) -> Metric:
    """The metric that leads the newest measured round; that of the `task` if none was measured."""
    for record in reversed(history):
        found = words.leading(record.test_metrics or record.client_metrics)
        if found is not None:
            return found[0]
    return task.metrics[0]


def measured_text(record: RoundRecord) -> str:
    """A round's leading figure and what naive answers reach: `test mae 1.2, no change 1.5`."""
    where = where_measured([record])
    figures = figures_there(record, where)
    return ", ".join(filter(None, [f"{where} {leading_text(figures)}", words.reference_text(figures)]))


def where_measured(history: Sequence[RoundRecord]) -> str:
    """On which data the figures of these rounds were measured: `test`, or `own data` of the devices."""
    only_there = not any(record.test_metrics for record in history) and any(
        record.client_metrics for record in history
    )
    return OWN_DATA if only_there else "test"


def figures_there(record: RoundRecord, where: str) -> Mapping[str, float]:
    """A round's figures of the model on the server's test data, or on the devices' own."""
    return record.client_metrics if where == OWN_DATA else record.test_metrics


def newest_figure_text(history: Sequence[RoundRecord]) -> str:
    """The leading figure of the newest tested round; empty before a test."""
    return next(
        (leading_text(record.test_metrics) for record in reversed(history) if record.test_metrics), ""
    )


def served_figure(device: DeviceRecord, metric: Metric) -> float | None:
    """A device's figure of the exported network, or of the file that it serves."""
    if metric is ACCURACY:
        return device.onnx_accuracy
    return device.metrics.get(metric.name)


def best_of(metric: Metric, values: Iterable[float]) -> float | None:
    """The best of these figures; None without any."""
    return (max if metric.higher_is_better else min)(values, default=None)


def tested_figures(history: Iterable[RoundRecord], metric: Metric) -> list[float]:
    """The full model's figure of every tested round, in order."""
    return [record.test_metrics[metric.name] for record in history if metric.name in record.test_metrics]


def range_text(metric: Metric, tiers: Mapping[int, Mapping[str, float]]) -> str:
    """The lowest and the highest figure among the tiers, `94.12-97.31%`, or one if they are equal."""
    values = [figures[metric.name] for figures in tiers.values() if metric.name in figures]
    if not values:
        return UNKNOWN
    least, most = metric.text(min(values)), metric.text(max(values))
    return most if least == most else f"{least.removesuffix('%')}-{most}"


def measured_name(summary: Summary) -> str:
    """What a summary's leading figure is: `test accuracy`, or `accuracy on devices` without a test."""
    metric, where = _leading(summary)
    return f"test {metric.name}" if where == "test" else f"{metric.name} on devices"


def measured_figures(summary: Summary) -> tuple[str, str]:
    """The leading figure of a summary and the best of all rounds, which is empty without a test."""
    metric, where = _leading(summary)
    text = figure_text(metric)
    if where == "devices":
        return text(summary.client_metrics.get(metric.name)), ""
    return text(summary.test_metrics.get(metric.name)), text(summary.best_metric)


def naive_figures(summary: Summary) -> str:
    """What naive answers reach where the leading figure was measured; empty without any."""
    return words.reference_text(
        summary.client_metrics if _leading(summary)[1] == "devices" else summary.test_metrics
    )


def own_figure(summary: Summary) -> str:
    """The leading figure of models that devices keep for themselves, with its name; empty without any."""
    found = words.leading(summary.own_metrics)
    return "" if found is None else f"devices' own models {found[0].name} {figure_text(found[0])(found[1])}"


def _leading(summary: Summary) -> tuple[Metric, str]:
    tested, on_devices = words.leading(summary.test_metrics), words.leading(summary.client_metrics)
    if tested is not None:
        return tested[0], "test"
    if on_devices is not None:
        return on_devices[0], "devices"
    return ACCURACY, "test"


def warning_texts(history: Sequence[RoundRecord], devices: Sequence[DeviceRecord] = ()) -> list[str]:
    """The warnings of a run, the first one first; `devices` are those with a delivered model."""
    rounds = [f"round {record.round}: {clean(found.text)}" for record in history for found in record.warnings]
    return rounds + _loss_by_delivery(history, devices)


def _loss_by_delivery(history: Sequence[RoundRecord], devices: Sequence[DeviceRecord]) -> list[str]:
    """Whether devices lose by delivery: what they trained last was better on the examples they hold out."""
    trained = {name: share for record in history for name, share in record.trained_accuracy.items()}
    pairs = [
        (trained[row.device], row.onnx_accuracy)
        for row in devices
        if row.device in trained and row.onnx_accuracy is not None
    ]
    worse = sum(before > after for before, after in pairs)
    if not pairs or 2 * worse < len(pairs):
        return []
    before, after = (fmean(values) for values in zip(*pairs, strict=True))
    if before - after <= SLIGHT_LOSS:
        return []
    asked = any(row.personalisation is not None for row in devices)
    auto = ': set [training] personalise-epochs = "auto" if a device sees only its own classes'
    return [
        f"delivery: {worse} of {counted_text(len(pairs), 'device')} had a better model for the examples that "
        f"they hold out after their last training (mean accuracy {before:.2%}) than the delivered one "
        f"({after:.2%}){'' if asked else auto}"
    ]


Trained = tuple[DeviceRecord, Personalisation]


def personalised_devices(devices: Sequence[DeviceRecord]) -> list[Trained]:
    """The devices that were asked to train their delivered model, each with its result."""
    return [(row, row.personalisation) for row in devices if row.personalisation is not None]


def before_and_after(found: Personalisation) -> tuple[str, str]:
    """The leading figure on held-out data of the received model, and of the trained one."""
    text = figure_text(words.METRICS.get(found.metric, ACCURACY))
    return text(found.before), text(found.after)


def keeps_text(found: Personalisation) -> str:
    return (found.model or "trained") if found.kept else "as received"


def personal_line(devices: Sequence[DeviceRecord]) -> str:
    """All devices in one sentence; empty if none was asked.

    `3 of 4 devices keep the model that they trained on their own data: accuracy 91.2%, 80.1% as received`:
    the mean over the devices that measured both, of what they keep. Of devices that chose among several
    models, `(2 personal, 1 alone)`.
    """
    asked = [found for _, found in personalised_devices(devices)]
    if not asked:
        return ""
    kept = sum(found.kept for found in asked)
    chosen = Counter(found.model for found in asked if found.kept and found.model)
    which = f" ({', '.join(f'{count} {name}' for name, count in chosen.most_common())})" if chosen else ""
    of_all = f"{kept} of {counted_text(len(asked), 'device')}"
    return f"{of_all} keep the model that they trained on their own data{which}{_means(asked)}"


def _means(asked: Sequence[Personalisation]) -> str:
    pairs = [
        (found.before, found.after if found.kept else found.before)
        for found in asked
        if found.before is not None and found.after is not None
    ]
    name = next((found.metric for found in asked if found.metric in words.METRICS), "")
    if not pairs or not name:
        return ""
    before, now = (figure_text(words.METRICS[name])(fmean(values)) for values in zip(*pairs, strict=True))
    return f": {name} {now}, {before} as received"
