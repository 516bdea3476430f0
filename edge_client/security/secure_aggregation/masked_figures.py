"""What a device measures of a model, as numbers that masks can hide, and back.

Weighted by its held-out examples, a device sends each figure of the task to the metric's power, its loss, and
each class's share of the examples; whether it has a figure is a number too.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import learning_task
from edge_client.pruning.index_sets import check_spec, cut_axes, extract
from schemas import messages, statistics
from schemas.errors import ConfigError, PeerError, Reason
from schemas.security.secure_aggregation import MaskedSegment, MaskingTerms
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors.arrays import Arrays, Groups
from schemas.values import ModelSpec, TrainingMetrics

# Per parameter, in its full shape: the segment of each coordinate; -1 where no sub-model holds it.
Labels = Mapping[str, NDArray[np.int16]]


def distinct(specs: Sequence[SubModelSpec]) -> tuple[SubModelSpec, ...]:
    """The distinct sub-models in a canonical order; `ConfigError` for one that is not a prefix."""
    for spec in specs:
        chosen = [group for group, kept in spec.kept.items() if not isinstance(kept, int)]
        if chosen:
            raise ConfigError(
                f"secure aggregation needs nested sub-models: of group '{chosen[0]}' single channels are "
                "chosen",
                remedy='set [strategy] pruner = "index"',
            )
    written = {spec.model_dump_json(): spec for spec in specs}
    return tuple(written[text] for text in sorted(written))


def partition(
    specs: Sequence[SubModelSpec], channel_map: ChannelMap
) -> tuple[tuple[MaskedSegment, ...], Labels]:
    """The segments of these sub-models, and the segment of each coordinate."""
    for spec in specs:
        check_spec(spec, channel_map)
    held = {name: _holders(layout, specs) for name, layout in channel_map.parameters.items()}
    patterns = sorted({int(pattern) for bits in held.values() for pattern in np.unique(bits)} - {0})
    sizes = [sum(int((bits == pattern).sum()) for bits in held.values()) for pattern in patterns]
    segments = tuple(
        MaskedSegment(holders=tuple(i for i in range(len(specs)) if pattern >> i & 1), size=size)
        for pattern, size in zip(patterns, sizes, strict=True)
    )
    places = np.array([0, *patterns], np.uint64)
    labels = {name: (np.searchsorted(places, bits) - 1).astype(np.int16) for name, bits in held.items()}
    return segments, labels


def _holders(layout: ParameterLayout, specs: Sequence[SubModelSpec]) -> NDArray[np.uint64]:
    """Bit i of each coordinate is 1 if sub-model i holds it."""
    bits = np.zeros(layout.shape, np.uint64)
    for index, spec in enumerate(specs):
        cut = cut_axes(layout, spec)
        kept = [cut.get(axis, np.arange(length)) for axis, length in enumerate(layout.shape)]
        bits[np.ix_(*kept)] |= np.uint64(1 << index)
    return bits


def checked_labels(terms: MaskingTerms, channel_map: ChannelMap) -> Labels:
    """The segment of each coordinate; `PeerError` unless the terms' segments are those of its sub-models."""
    segments, labels = partition(terms.specs, channel_map)
    if segments != terms.segments:
        raise PeerError("the segments to mask are not those of the sub-models", reason=Reason.WRONG_SHAPE)
    return labels


def split(
    arrays: Arrays, spec: SubModelSpec, labels: Labels, channel_map: ChannelMap
) -> dict[int, NDArray[Any]]:
    """A sub-model's arrays as one vector [size] per segment that it holds."""
    own = extract(labels, spec, channel_map)
    names = sorted(channel_map.parameters)
    held = sorted({int(segment) for name in names for segment in np.unique(own[name])})
    return {index: np.concatenate([arrays[name][own[name] == index] for name in names]) for index in held}


def join(vectors: Mapping[int, NDArray[Any]], labels: Labels) -> dict[str, NDArray[Any]]:
    """The full arrays with the values of these segments, 0 elsewhere."""
    full = {name: np.zeros(label.shape) for name, label in labels.items()}
    for index, vector in vectors.items():
        start = 0
        for name in sorted(labels):
            mine = labels[name] == index
            count = int(mine.sum())
            full[name][mine] = vector[start : start + count]
            start += count
    return full


# Statistics of a device's examples as numbers that masks can hide, and back.
#
# Masks hide weighted means of numbers within +-1. Weighted by its examples, a device sends the mean of each
# feature and that of its square, in widths of the feature's stated range, and the share of values in each
# bin. A value beyond the range counts as one at its end. Least and most values are of single examples: they
# are left out, and known by the bins alone.

VALUE_RANGE = 1.0  # the numbers' range in the masking terms
_MEANS = (statistics.SUM, statistics.SQUARES, statistics.HISTOGRAM)
Numbers = NDArray[np.float64]
Shapes = Mapping[str, tuple[int, ...]]


def mean_shapes(answer: Mapping[str, Shapes]) -> dict[str, tuple[int, ...]]:
    """The numbers of an answer whose arrays have these shapes, by group."""
    return {
        f"{kind}.{name}": shape
        for kind, arrays in answer.items()
        for name, shape in arrays.items()
        if name in _MEANS or kind == statistics.LABELS
    }


def shapes_of(numbers: Mapping[str, Numbers]) -> Shapes:
    return {name: array.shape for name, array in numbers.items()}


def map_of(shapes: Shapes, groups: Mapping[str, ChannelGroup] = MappingProxyType({})) -> ChannelMap:
    """A channel map in which these numbers are one segment, held by sub-models with any of the `groups`."""
    return ChannelMap(groups=groups, parameters={n: ParameterLayout(shape=s) for n, s in shapes.items()})


def as_means(answer: Groups, request: statistics.StatisticsRequest, examples: int) -> dict[str, Numbers]:
    """The numbers of a device's answer to a request with ranges."""
    found: dict[str, Numbers] = {}
    for kind, ranges in _list_ranges(request):
        if kind in answer:
            sums = {
                name: np.asarray(answer[kind][name], np.float64)
                for name in (statistics.COUNT, statistics.SUM, statistics.SQUARES)
            }
            width, counts = _widths(ranges), np.asarray(answer[kind][statistics.HISTOGRAM], np.float64)
            found[f"{kind}.{statistics.SUM}"] = sums[statistics.SUM] / sums[statistics.COUNT] / width
            found[f"{kind}.{statistics.SQUARES}"] = (
                sums[statistics.SQUARES] / sums[statistics.COUNT] / np.square(width)
            )
            found[f"{kind}.{statistics.HISTOGRAM}"] = counts / sums[statistics.COUNT][:, None]
    if statistics.LABELS in answer:
        found[f"{statistics.LABELS}.{statistics.COUNT}"] = (
            np.asarray(answer[statistics.LABELS][statistics.COUNT], np.float64) / examples
        )
    return found


def as_sums(
    means: Arrays, request: statistics.StatisticsRequest, examples: int, *, values: int, devices: int
) -> dict[str, dict[str, Any]]:
    """The answer of `devices` with these means over all their examples, each with `values` per feature.

    Masked numbers may be anything: counts below 0 are 0.
    """
    groups: dict[str, dict[str, Any]] = {statistics.DEVICES: {statistics.COUNT: np.array([float(devices)])}}
    for kind, ranges in _list_ranges(request):
        if f"{kind}.{statistics.SUM}" in means:
            count = examples * (values if kind == statistics.FEATURES else 1)
            groups[kind] = _sums({n: _array(means, f"{kind}.{n}") for n in _MEANS}, ranges, count)
    if f"{statistics.LABELS}.{statistics.COUNT}" in means:
        groups[statistics.LABELS] = {
            statistics.COUNT: _counts(_array(means, f"{statistics.LABELS}.{statistics.COUNT}"), examples)
        }
    return groups


def _sums(means: Mapping[str, Numbers], ranges: statistics.Ranges, count: int) -> dict[str, Numbers]:
    width, histogram = _widths(ranges), _counts(means[statistics.HISTOGRAM], count)
    least, most = _find_reach(histogram, ranges)
    return {
        statistics.COUNT: np.full(len(histogram), float(count)),
        statistics.SUM: means[statistics.SUM] * width * count,
        statistics.SQUARES: means[statistics.SQUARES] * np.square(width) * count,
        statistics.MIN: least,
        statistics.MAX: most,
        statistics.HISTOGRAM: histogram,
    }


def _find_reach(histogram: Numbers, ranges: statistics.Ranges) -> tuple[Numbers, Numbers]:
    """The lower edge of the first bin of [F, bins + 2] with a value, and the upper edge of the last."""
    low, high = (np.asarray(edge, np.float64) for edge in (ranges.low, ranges.high))
    bins, there = histogram.shape[1] - 2, histogram > 0
    first = np.clip(there.argmax(1) - 1, 0, bins)
    last = np.clip(bins + 1 - there[:, ::-1].argmax(1), 0, bins)
    return low + (high - low) * first / bins, low + (high - low) * last / bins


def _list_ranges(request: statistics.StatisticsRequest) -> list[tuple[str, statistics.Ranges]]:
    both = ((statistics.FEATURES, request.features), (statistics.TARGETS, request.targets))
    return [(kind, ranges) for kind, ranges in both if ranges is not None]


def _widths(ranges: statistics.Ranges) -> Numbers:
    """The largest distance [F] of a value within the range from its centre; 1 in a range of one value."""
    centre, low, high = (np.asarray(e, np.float64) for e in (ranges.centre, ranges.low, ranges.high))
    width = np.maximum(high - centre, centre - low)
    return np.where(width > 0, width, 1.0)


def _counts(shares: Numbers, count: int) -> Numbers:
    return np.asarray(np.maximum(0, np.rint(shares * count)))


def _array(means: Arrays, name: str) -> Numbers:
    return np.asarray(means[name], np.float64)


FIGURES, KNOWN, CLASSES = "figures", "known", "classes"
LOSS = Metric("loss", lambda answers: None, higher_is_better=False, share=False)
MIN_KNOWN = 1e-6  # a smaller share of examples that have a figure is rounding


def only_measures(task: messages.TrainTask) -> bool:
    """Whether a task asks for figures of a model and nothing else."""
    return task.training.local_epochs == 0 and task.returned == () and task.statistics is None


def _metrics(model: ModelSpec) -> tuple[Metric, ...]:
    return (*learning_task(model.task).metrics, LOSS)


def figure_shapes(model: ModelSpec, *, by_class: bool) -> Shapes:
    count = len(_metrics(model))
    shapes: dict[str, tuple[int, ...]] = {FIGURES: (count,), KNOWN: (count,)}
    return {**shapes, CLASSES: (model.num_classes, 2)} if by_class else shapes


def as_numbers(metrics: TrainingMetrics, task: messages.TrainTask) -> dict[str, Numbers]:
    """The numbers of what this device has measured."""
    known = {**metrics.metrics, LOSS.name: metrics.received_loss}
    found = [(known.get(metric.name), metric.power) for metric in _metrics(task.model)]
    numbers = {
        FIGURES: np.array([0.0 if value is None else value**power for value, power in found]),
        KNOWN: np.array([float(value is not None) for value, _ in found]),
    }
    if task.by_class:
        counts = np.zeros((task.model.num_classes, 2))
        counts[: len(metrics.by_class)] = np.reshape(metrics.by_class, (-1, 2))
        numbers[CLASSES] = counts / max(1, metrics.measured_on)
    return numbers


def as_measured(means: Arrays, model: ModelSpec, examples: int) -> TrainingMetrics:
    """What a cohort has measured with these means over its held-out examples.

    Masked numbers may be anything: shares and counts are brought to where they can be.
    """
    numbers = zip(*(np.asarray(means[part], np.float64).tolist() for part in (FIGURES, KNOWN)), strict=True)
    found = {
        metric.name: _of_mean(metric, figure / known)
        for metric, (figure, known) in zip(_metrics(model), numbers, strict=True)
        if known > MIN_KNOWN
    }
    loss = found.pop(LOSS.name, None)
    counts = _counts(np.asarray(means.get(CLASSES, ()), np.float64), examples)
    return TrainingMetrics(
        examples=examples,
        epochs=0,
        steps=0,
        received_loss=loss,
        accuracy=found.get("accuracy"),
        metrics=found,
        measured_on=examples,
        by_class=tuple((int(held_out), int(min(right, held_out))) for held_out, right in counts),
    )


def _of_mean(metric: Metric, mean: float) -> float:
    """The figure whose mean over the examples, to the metric's power, is `mean`."""
    if metric.share or metric.power > 1 or metric is LOSS:
        mean = max(0.0, mean)
    figure: float = mean ** (1 / metric.power)
    return min(1.0, figure) if metric.share else figure
