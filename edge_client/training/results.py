"""What a training reports, and the groups that its objectives make; channels that no example reaches."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from edge_client.compression.low_rank import Factors
from edge_client.data.dataset import LabelledData
from schemas.errors import ConfigError, EdgeError
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, Groups, blocks, kind_of, rows_of
from schemas.values import TrainingMetrics

DEAD_CHANNELS = "dead-channels"  # a figure among a device's metrics, sent from `MAX_DEAD` on
MAX_DEAD = 0.75  # share of a layer's channels that good trainings stay below


def dead_share(delta: Arrays, channel_map: ChannelMap, trained: Collection[str] | None = None) -> float:
    """The share of dead channels in the hidden layer with most of them; `delta` is trained minus received.

    A channel that its ReLU cuts off for every example gets no gradient, and its weights stay where they were
    (but for weight decay, which hides it). A layer of which nothing moved is not trained, and has none; of
    those, only `trained` arrays are read where that is known.
    """
    names = {f"{layer}.weight" for group in channel_map.groups.values() for layer in group.layers}
    shares = list[float]()
    for name in sorted(names & delta.keys() if trained is None else names & delta.keys() & set(trained)):
        kind = kind_of(delta, name)
        parts = (rows_of(delta, name, start, stop) for start, stop in blocks(kind))
        moved = sum(int(part.reshape(len(part), -1).any(axis=1).sum()) for part in parts)
        shares.append(1 - moved / kind[1][0])
    return max((share for share in shares if share < 1), default=0.0)


MAX_LOSS = 1e9  # a larger or infinite loss has diverged and is reported as None


class TrainingStopped(EdgeError):
    """Training was stopped before its end; what was trained is incomplete."""


class TrainingGivenUp(EdgeError):
    """A pause of a training lasted too long; what its task asks for besides goes on without it."""


@dataclass(frozen=True)
class EpochReport:
    """A finished pass over the data: `epoch` of `epochs`, from 1, and its mean loss per example if finite."""

    epoch: int
    epochs: int
    loss: float | None


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """Measurements, the groups that objectives send with the model, and the groups that they keep.

    `factors` are those of the changes that have a low rank.
    """

    groups: Groups
    metrics: TrainingMetrics
    kept: Groups = field(default_factory=dict)
    factors: Mapping[str, Factors] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """A network's loss on examples, and the figures of its learning task by name.

    The loss is the mean per example, None if not finite, or without examples. `by_output` is one more figure
    for each output, in their order; None where it is not defined. `by_class` are each class's examples, and
    those of them that are recognised; `counts` of each class are those of the task.
    """

    loss: float | None
    metrics: Mapping[str, float]
    examples: int
    by_output: tuple[float | None, ...] = ()
    by_class: tuple[tuple[int, int], ...] = ()
    counts: tuple[tuple[int, ...], ...] = ()

    @property
    def accuracy(self) -> float | None:
        """Share of correct answers, where they are right or wrong."""
        return self.metrics.get("accuracy")

    @classmethod
    def of(
        cls, data: LabelledData, outputs: NDArray[Any], loss: float, targets: NDArray[Any]
    ) -> "Evaluation":
        """Judge the outputs [N, L] for `data` with N examples, at least one, by its learning task."""
        task, answers = data.learning_task, data.answers(outputs, targets)
        by_output = () if task.by_output is None else tuple(task.by_output[1](answers).tolist())
        by_class = () if task.by_class is None else task.by_class(answers).tolist()
        counts = () if task.counts is None else task.counts(answers).tolist()
        return cls(
            loss if math.isfinite(loss) else None,
            task.measure_answers(answers),
            len(data),
            tuple(value if math.isfinite(value) else None for value in by_output),
            tuple((examples, right) for examples, right in by_class),
            tuple(map(tuple, counts)),
        )


NOTHING = Evaluation(None, {}, 0)  # an evaluation without examples


def bound_loss(loss: float | None) -> float | None:
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
