"""Chooses the variant of a network that a device keeps, with the reason."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.values import Variant

MAX_LOSS = 1.0
"""Default limit in points of accuracy."""
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
    """One measured variant: accuracy from 0 to 1 on held-out data, milliseconds per image."""

    variant: Variant
    bytes: int
    accuracy: float | None
    latency_ms: float


@dataclass(frozen=True)
class VariantChoice:
    """The variant that is kept, and why."""

    kept: Measured
    why: str


def choose(export: Measured, others: Sequence[Measured], *, max_loss: float = MAX_LOSS) -> VariantChoice:
    """The fastest variant (of equals, the smallest) that loses less than `max_loss` points of accuracy.

    Without an accuracy the export is kept.
    """
    if not others:
        return VariantChoice(export, "no other variant is configured")
    if export.accuracy is None:
        return VariantChoice(export, "no held-out examples here to measure another's accuracy on")
    refused = [variant for variant in others if points_lost(export, variant) >= max_loss]
    fitting = [export, *(variant for variant in others if variant not in refused)]
    kept = min(fitting, key=lambda variant: (variant.latency_ms, variant.bytes))
    reasons = [_compared(export, variant) for variant in fitting if variant is not export]
    reasons += [f"{_compared(export, variant)}, at most {max_loss:g} allowed" for variant in refused]
    return VariantChoice(kept, "; ".join([f"fastest at {kept.latency_ms:.3f} ms", *reasons]))


def points_lost(export: Measured, other: Measured) -> float:
    """Points of accuracy that another variant is below the export; negative if above."""
    if export.accuracy is None or other.accuracy is None:
        return float("inf")
    # Accuracies are ratios of counts: smaller differences are rounding errors.
    return round((export.accuracy - other.accuracy) * 100, 6)


def _compared(export: Measured, other: Measured) -> str:
    speed = export.latency_ms / other.latency_ms if other.latency_ms else float("inf")
    return (
        f"{other.variant} {speed:.2f} x as fast as {export.variant}, {_loss_text(points_lost(export, other))}"
    )


def _loss_text(lost: float) -> str:
    if lost == float("inf"):
        return "accuracy unknown"
    return f"{lost:.2f} points lost" if lost > 0 else "no accuracy lost"
