"""What a training reports, and the groups that its objectives make."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from schemas.errors import ConfigError, EdgeError
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import TrainingMetrics

MAX_LOSS = 1e9
"""A larger or infinite loss has diverged and is reported as None."""


class TrainingStopped(EdgeError):
    """Training was stopped before its end; what was trained is incomplete."""


@dataclass(frozen=True)
class EpochReport:
    """A finished epoch: `epoch` of `epochs`, counted from 1, and its mean loss per example if finite."""

    epoch: int
    epochs: int
    loss: float | None


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Measurements, the groups that objectives send with the model, and the groups that they keep."""

    groups: Groups
    metrics: TrainingMetrics
    kept: Groups = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """Mean cross-entropy per example (None if not finite) and share of correct answers; None without data."""

    loss: float | None
    accuracy: float | None
    examples: int


def bounded(loss: float | None) -> float | None:
    """The loss, or None if it has diverged."""
    return loss if loss is not None and abs(loss) <= MAX_LOSS else None


def merge_groups(parts: Iterable[Groups]) -> dict[str, Arrays]:
    """Join the groups of several objectives; raises `ConfigError` if two have the same group."""
    merged: dict[str, Arrays] = {}
    for part in parts:
        for group, arrays in part.items():
            if group in merged:
                raise ConfigError(f"two objectives send the group {group!r}")
            merged[group] = arrays
    return merged
