"""All figures of the learning task after the last measured round, and one for each output."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import TASKS
from edge_client.data.tasks.words import METRICS
from edge_server.config.units import UNKNOWN, bytes_text, count_text, figure_text, number_text, percent_text
from edge_server.observability.figures import leading_metric
from edge_server.observability.report.charts import Chart, Series
from edge_server.observability.report.document import Cell, Paragraph, Section, Table, numbers, table, words
from edge_server.storage.records import MeasuredDevice, RoundRecord
from schemas.values import ClassCounts


def run_charts(history: Sequence[RoundRecord]) -> tuple[Chart, ...]:
    """The charts of a run: accuracy, loss, bytes and time by round."""
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
    own = curve("on devices", history, lambda record: record.client_metrics.get(metric.name))
    if own.known_points and not any(candidate.known_points for candidate in series):
        series, title = [own], f"Devices' own data: {metric.name}"
    text, highest = (percent_text, 1.0) if metric.share else (number_text, None)
    return Chart("accuracy", title, unit, tuple(series), text, highest=highest)


def loss_chart(history: Sequence[RoundRecord]) -> Chart:
    series = (
        curve("training", history, lambda record: record.train_loss),
        curve("test", history, lambda record: record.test_loss),
    )
    return Chart("loss", "Loss", "loss", series, number_text, from_zero=True)


def bytes_chart(history: Sequence[RoundRecord]) -> Chart:
    """Bytes that the server sent to devices (down) and received from them (up) in each round."""
    series = (
        curve("down", history, lambda record: record.downlink_bytes),
        curve("up", history, lambda record: record.uplink_bytes),
    )
    return Chart("bytes", "Bytes per round, at the server", "bytes", series, bytes_text, from_zero=True)


def time_chart(history: Sequence[RoundRecord]) -> Chart:
    series = (curve("duration", history, lambda record: record.duration_s),)
    return Chart("time", "Time per round", "time", series, lambda y: f"{number_text(y)} s", from_zero=True)


def curve(label: str, history: Sequence[RoundRecord], value: Callable[[RoundRecord], float | None]) -> Series:
    return Series(label, tuple((record.round, value(record)) for record in history))


def _tier(tier: int, metric: Metric) -> Callable[[RoundRecord], float | None]:
    return lambda record: record.tier_metrics.get(tier, {}).get(metric.name)


# Figures by class: the share of a class's examples that a model recognises, and that share's interval.

TEST_DATA, ALL_DEVICES = "test data", "all devices"
Counts = Mapping[str, ClassCounts]


@dataclass(frozen=True)
class ClassFigure:
    """A class's examples, those that are recognised, their share and its 95 % interval (Wilson 1927)."""

    examples: int
    right: int
    recall: float | None
    interval: tuple[float, float] | None


def class_figures(counts: Counts) -> dict[str, ClassFigure]:
    """The figures of each class; a class without examples has no share."""
    return {name: _figure(*found) for name, found in counts.items()}


def _figure(examples: int, right: int) -> ClassFigure:
    recall = right / examples if examples else None
    return ClassFigure(examples, right, recall, None if recall is None else wilson(recall, examples))


def sum_by_class(devices: Iterable[MeasuredDevice]) -> dict[str, ClassCounts]:
    sums = dict[str, ClassCounts]()
    for device in devices:
        for name, (examples, right) in device.by_class.items():
            before = sums.get(name, (0, 0))
            sums[name] = (before[0] + examples, before[1] + right)
    return sums


def newest_counts(history: Sequence[RoundRecord]) -> tuple[int, dict[str, Counts]]:
    """The newest round that counted by class, and its counts: of the test data, of all devices, of each.

    Round 0 without any.
    """
    for record in reversed(history):
        devices = {name: device.by_class for name, device in record.measured.items()}
        found = {
            TEST_DATA: record.test_by_class,
            ALL_DEVICES: sum_by_class(record.measured.values()),
            **devices,
        }
        if counted := {name: counts for name, counts in found.items() if counts}:
            return record.round, counted
    return 0, {}


Z = 1.959964  # The 97.5 % point of the normal distribution
RESAMPLES, MIN_DEVICES = 2000, 3  # Bootstrap resamples, and the least number of devices for them


def wilson(share: float, examples: int) -> tuple[float, float] | None:
    """The 95 % interval of a share of examples (Wilson 1927); None without examples."""
    if examples <= 0:
        return None
    centre = share + Z**2 / (2 * examples)
    width = Z * math.sqrt(share * (1 - share) / examples + Z**2 / (4 * examples**2))
    scale = 1 + Z**2 / examples
    return max(0.0, (centre - width) / scale), min(1.0, (centre + width) / scale)


def over_devices(
    values: Sequence[float], examples: Sequence[float], *, power: int
) -> tuple[float, float] | None:
    """The 95 % interval of the devices' mean of this power, weighted by examples, by bootstrap over devices.

    None for fewer than three devices.
    """
    if len(values) < MIN_DEVICES:
        return None
    chosen = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    powers, weights = np.asarray(values) ** power, np.asarray(examples, np.float64)
    means = ((powers * weights)[chosen].sum(1) / weights[chosen].sum(1)) ** (1 / power)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def figure_section(history: Sequence[RoundRecord], task: str) -> Section:
    """The section with a row per model, and a row per output."""
    last = next(
        (record for record in reversed(history) if record.test_metrics or record.client_metrics), None
    )
    if last is None:
        return Section("Figures", (Paragraph("Nothing was measured."),))
    measured = {
        "whole model, test data": last.test_metrics,
        **{f"tier {tier}, test data": found for tier, found in sorted(last.tier_metrics.items())},
        "devices, their own data": last.client_metrics,
        "devices' own models, their own data": last.own_metrics,
    }
    names = list(dict.fromkeys(name for found in measured.values() for name in found if name in METRICS))
    rows = [(words(label), *_cells(found, names)) for label, found in measured.items() if found]
    caption = f"Every figure after round {last.round}; the first one leads all other tables and charts"
    shown = [table(caption, ("model", *names), rows, rest="history.jsonl")]
    if last.test_by_output:
        shown.append(_by_output(last, task))
    return Section("Figures", (*shown, *device_class_tables(history, task)))


def _cells(found: Mapping[str, float], names: Sequence[str]) -> tuple[Cell, ...]:
    return numbers(*(figure_text(METRICS[name])(found.get(name)) for name in names))


def _by_output(record: RoundRecord, task: str) -> Table:
    by_output = TASKS[task].by_output
    name = "figure" if by_output is None else by_output[0]
    share = name not in METRICS or METRICS[name].share
    counted, columns = class_figures(record.test_by_class), list[str]()
    if counted:
        columns = ["examples", *([] if name == RECALL else [RECALL]), INTERVAL]
    rows = [
        (
            words(output),
            *numbers(f"{value:.2%}" if share else f"{value:.4g}"),
            *(class_cells(counted.get(output), columns)),
        )
        for output, value in record.test_by_output.items()
    ]
    caption = "The whole model on the server's test data, one figure for each output"
    return table(caption, ("output", name, *_heads(columns, task)), rows, rest="history.jsonl")


RECALL, INTERVAL = "recall", "95 % interval of recall"
COLUMNS = ("examples", RECALL, INTERVAL)
MAX_COLUMNS = 20  # With more classes there is no column for each


def _heads(columns: Iterable[str], task: str) -> list[str]:
    """The heads of some of `COLUMNS`: a detector's classes have boxes in place of examples."""
    return [TASKS[task].counted_things if column == "examples" else column for column in columns]


def class_cells(figure: ClassFigure | None, columns: Sequence[str]) -> tuple[Cell, ...]:
    """A class's cells in these columns, some of `COLUMNS`; a class without examples has no share."""
    texts = dict.fromkeys(COLUMNS, UNKNOWN)
    if figure is not None:
        texts["examples"], texts[RECALL] = count_text(figure.examples), percent_text(figure.recall)
        if figure.interval is not None:
            texts[INTERVAL] = " - ".join(map(percent_text, figure.interval))
    return numbers(*(texts[column] for column in columns))


def device_class_tables(history: Sequence[RoundRecord], task: str) -> tuple[Table, ...]:
    """A row per class over all devices, and a row per device; none if no device counted its classes."""
    _, counted = newest_counts(history)
    if ALL_DEVICES not in counted:
        return ()
    whole = class_figures(counted[ALL_DEVICES])
    rows = [(words(name), *class_cells(figure, COLUMNS)) for name, figure in whole.items()]
    things = TASKS[task].counted_things
    caption = (
        f"All devices on data that they hold out, by class: the share of its {things} that is recognised"
    )
    pooled = table(caption, ("class", *_heads(COLUMNS, task)), rows, rest="history.jsonl")
    devices = {name: counts for name, counts in counted.items() if name not in (TEST_DATA, ALL_DEVICES)}
    return (pooled, _per_device(devices, list(whole))) if len(whole) <= MAX_COLUMNS else (pooled,)


def _per_device(devices: Mapping[str, Counts], names: Sequence[str]) -> Table:
    figures = {device: class_figures(counts) for device, counts in devices.items()}
    rows = [
        (words(device), *numbers(*(_share_of(found.get(name)) for name in names)))
        for device, found in figures.items()
    ]
    caption = "Each device on data that it holds out: the share of each class's examples that is recognised"
    return table(caption, ("device", *names), rows, rest="history.jsonl")


def _share_of(figure: ClassFigure | None) -> str:
    """`50% of 6`."""
    if figure is None or figure.recall is None:
        return UNKNOWN
    return f"{figure.recall:.0%} of {count_text(figure.examples)}"
