"""Figures of learning tasks as text: everywhere the leading one comes first."""

import contextlib
from collections.abc import Iterator, Mapping

from edge_client.data.tasks.learning_task import LearningTask, Metric
from edge_client.data.tasks.registry import TASKS
from schemas.errors import ConfigError


class _Metrics(Mapping[str, Metric]):
    """Metrics of shipped tasks, then those of plugins that can be imported."""

    def __getitem__(self, name: str) -> Metric:
        for metric in self._all():
            if metric.name == name:
                return metric
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        yield from dict.fromkeys(metric.name for metric in self._all())

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _all(self) -> Iterator[Metric]:
        for task in _tasks():
            yield from task.figures


def _tasks() -> Iterator[LearningTask]:
    for name in TASKS:
        with contextlib.suppress(ConfigError):
            yield TASKS[name]


METRICS: Mapping[str, Metric] = _Metrics()  # tasks that share a name share its scale and direction


def leading(figures: Mapping[str, float]) -> tuple[Metric, float] | None:
    """The first figure with its metric; None without any, or of a metric that is not known here."""
    name = next(iter(figures), None)
    return None if name is None or name not in METRICS else (METRICS[name], figures[name])


def reference_text(figures: Mapping[str, float]) -> str:
    """What naive answers reach: `no change 0.42, season ago 0.38`; empty without any."""
    return ", ".join(
        f"{metric.name.replace('-', ' ')} {metric.text(figures[metric.name])}"
        for task in _tasks()
        for metric in task.references
        if metric.name in figures
    )


def figure_text(figures: Mapping[str, float], nothing: str = "") -> str:
    """The leading figure: `93.12%` of an accuracy, else with its name: `mae 0.3112`."""
    found = leading(figures)
    if found is None:
        return nothing
    metric, value = found
    return metric.text(value) if metric.name == "accuracy" else f"{metric.name} {metric.text(value)}"
