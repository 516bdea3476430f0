"""Chooses the variant of a network that a device keeps, with the reason."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from schemas.values import Variant

if TYPE_CHECKING:
    from edge_client.data.tasks.learning_task import LearningTask, Metric

MAX_LOSS = 1.0  # default limit in points of accuracy
VARIANTS: tuple[Variant, ...] = ("fp32", "fp16", "int8")


@dataclass(frozen=True)
class VariantSettings:
    """The variants to try, and the points of accuracy that the kept one must lose less than."""

    variants: tuple[Variant, ...] = ("fp32",)
    max_loss: float = MAX_LOSS

    @property
    def others(self) -> tuple[Variant, ...]:
        """The variants that must be made, which `fp32` is not."""
        return tuple(variant for variant in VARIANTS if variant in self.variants and variant != "fp32")


EXPORT_ALONE = VariantSettings()
ALL = VariantSettings(VARIANTS)


@dataclass(frozen=True)
class Measured:
    """One measured variant: its task's figures on held-out data, milliseconds per image."""

    variant: Variant
    bytes: int
    metrics: Mapping[str, float]
    latency_ms: float

    @property
    def accuracy(self) -> float | None:
        """The accuracy from 0 to 1, where answers are right or wrong."""
        return self.metrics.get("accuracy")


@dataclass(frozen=True)
class VariantChoice:
    """The variant that is kept, and why."""

    kept: Measured
    why: str


def choose(
    export: Measured,
    others: Sequence[Measured],
    *,
    max_loss: float = MAX_LOSS,
    task: "LearningTask | None" = None,
) -> VariantChoice:
    """The fastest variant (of equals, the smallest) that loses less than `max_loss` points.

    Points are hundredths of the task's leading metric: of a share, or relative to another figure. The export
    is kept if it was not measured. By default the task is a classification.
    """
    # Imported here: a device's start has no use for arrays.
    from edge_client.data.tasks.registry import CLASSIFICATION

    metric = (task or CLASSIFICATION).leading(export.metrics)
    if not others:
        return VariantChoice(export, "no other variant is configured")
    if not export.metrics:
        return VariantChoice(export, f"no held-out examples here to measure another's {metric.name} on")
    refused = [variant for variant in others if points_lost(export, variant, metric) >= max_loss]
    fitting = [export, *(variant for variant in others if variant not in refused)]
    kept = min(fitting, key=lambda variant: (variant.latency_ms, variant.bytes))
    reasons = [_describe_comparison(export, variant, metric) for variant in fitting if variant is not export]
    reasons += [
        f"{_describe_comparison(export, variant, metric)}, at most {max_loss:g} allowed"
        for variant in refused
    ]
    return VariantChoice(kept, "; ".join([f"fastest at {kept.latency_ms:.3f} ms", *reasons]))


def points_lost(export: Measured, other: Measured, metric: "Metric") -> float:
    """Points of the metric that another variant is worse than the export; negative if better."""
    before, after = export.metrics.get(metric.name), other.metrics.get(metric.name)
    if before is None or after is None:
        return float("inf")
    # Accuracies are ratios of counts: smaller differences are rounding errors.
    return round(metric.worsening(before, after) * 100, 6)


def _describe_comparison(export: Measured, other: Measured, metric: "Metric") -> str:
    speed = export.latency_ms / other.latency_ms if other.latency_ms else float("inf")
    lost = points_lost(export, other, metric)
    text = f"{lost:.2f} points lost" if lost > 0 else f"no {metric.name} lost"
    text = f"{metric.name} unknown" if lost == float("inf") else text
    return f"{other.variant} {speed:.2f} x as fast as {export.variant}, {text}"
