"""Which variant of a network a device keeps, and why, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.values import Variant

MAX_LOSS = 1.0
"""In points of accuracy, unless stated."""
VARIANTS: tuple[Variant, ...] = ("fp32", "fp16", "int8")


@dataclass(frozen=True)
class VariantSettings:
    """Which variants are tried, and how many points of accuracy the kept one must lose less than.

    Without any beside `fp32` the export stays as it is.
    """

    variants: tuple[Variant, ...] = ("fp32",)
    max_loss: float = MAX_LOSS

    @property
    def others(self) -> tuple[Variant, ...]:
        """Those that have to be made."""
        return tuple(variant for variant in VARIANTS if variant in self.variants and variant != "fp32")


EXPORT_ALONE = VariantSettings()
ALL = VariantSettings(VARIANTS)


@dataclass(frozen=True)
class Measured:
    """One variant as measured here: accuracy from 0 to 1 on held-out data, milliseconds for one image."""

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
    """The fastest variant whose accuracy is less than `max_loss` points below the export's.

    The export itself stays where there is no accuracy to go by. Equally fast ones: the smaller file.
    """
    if not others:
        return VariantChoice(export, "no other was asked for")
    if export.accuracy is None:
        return VariantChoice(export, "no held-out examples here to measure another's accuracy on")
    refused = [one for one in others if points_lost(export, one) >= max_loss]
    fitting = [export, *(one for one in others if one not in refused)]
    kept = min(fitting, key=lambda one: (one.latency_ms, one.bytes))
    reasons = [_compared(export, one) for one in fitting if one is not export]
    reasons += [f"{_compared(export, one)}, at most {max_loss:g} allowed" for one in refused]
    return VariantChoice(kept, "; ".join([f"fastest at {kept.latency_ms:.3f} ms", *reasons]))


def points_lost(export: Measured, other: Measured) -> float:
    """How many points of accuracy another variant is below the export; negative where it is above."""
    if export.accuracy is None or other.accuracy is None:
        return float("inf")
    # Accuracies are counts over counts: what is left of a difference beyond this is rounding.
    return round((export.accuracy - other.accuracy) * 100, 6)


def _compared(export: Measured, other: Measured) -> str:
    speed = export.latency_ms / other.latency_ms if other.latency_ms else float("inf")
    return f"{other.variant} {speed:.2f} x as fast as {export.variant}, {_told(points_lost(export, other))}"


def _told(lost: float) -> str:
    if lost == float("inf"):
        return "accuracy unknown"
    return f"{lost:.2f} points lost" if lost > 0 else "no accuracy lost"
