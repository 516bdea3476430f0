"""Figures by class: the share of a class's examples that a model recognises, and that share's interval."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from edge_server.observability.intervals import wilson
from edge_server.storage.records import MeasuredDevice, RoundRecord
from schemas.values import ClassCounts

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


def pooled(devices: Iterable[MeasuredDevice]) -> dict[str, ClassCounts]:
    """The sums over devices, class by class."""
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
        found = {TEST_DATA: record.test_by_class, ALL_DEVICES: pooled(record.measured.values()), **devices}
        if counted := {name: counts for name, counts in found.items() if counts}:
            return record.round, counted
    return 0, {}
