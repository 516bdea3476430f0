"""Figures of learning tasks as text: everywhere the leading one comes first."""

from collections.abc import Mapping

from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import TASKS

METRICS: Mapping[str, Metric] = {metric.name: metric for task in TASKS.values() for metric in task.figures}
"""Every metric by name; tasks that share a name share its scale and direction."""


def leading(figures: Mapping[str, float]) -> tuple[Metric, float] | None:
    """The first figure with its metric; None without any, or of a metric that is not known here."""
    name = next(iter(figures), None)
    return None if name is None or name not in METRICS else (METRICS[name], figures[name])


def reference_text(figures: Mapping[str, float]) -> str:
    """What naive answers reach: `no change 0.42, season ago 0.38`; empty without any."""
    return ", ".join(
        f"{metric.name.replace('-', ' ')} {metric.text(figures[metric.name])}"
        for task in TASKS.values()
        for metric in task.references
        if metric.name in figures
    )


def figure_text(figures: Mapping[str, float], nothing: str = "") -> str:
    """The leading figure: `93.1%` of an accuracy, else with its name: `mae 0.31`."""
    found = leading(figures)
    if found is None:
        return nothing
    metric, value = found
    return metric.text(value) if metric.name == "accuracy" else f"{metric.name} {metric.text(value)}"
