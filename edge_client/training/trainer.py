"""The interface behind which torch and onnxruntime train."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from edge_client.compression.low_rank import Factors, with_products
from edge_client.data.local import LocalData
from edge_client.training import checkpoints, feature_cache, results
from schemas import messages, strategy, submodel
from schemas.errors import ConfigError, PeerError, Reason
from schemas.tensors.arrays import Arrays, Groups, kind_of
from schemas.values import KeptFeatures, TrainerName, TrainingMetrics


@contextmanager
def decline_unknown() -> Iterator[None]:
    """Decline a task with names or options that are unknown here: `ConfigError` becomes `PeerError`."""
    try:
        yield
    except ConfigError as error:
        raise PeerError(f"this device cannot do the task: {error}", reason=Reason.INCOMPATIBLE) from error


def equal_parts(whole: int) -> Iterable[int]:
    """The sizes of a batch in 1, 2, 3, ... nearly equal parts, each size once."""
    return dict.fromkeys(-(-whole // parts) for parts in range(1, whole + 1))


def no_memory(needed: float, free: int, size: int) -> PeerError:
    """The refusal of a task that needs so many bytes more in the smallest batches."""
    batches = f"batches of {size}" if size > 1 else "one example at a time"
    return PeerError(
        f"training needs {needed / 1e6:.0f} MB more, {free / 1e6:.0f} MB are free ({batches})",
        reason=Reason.NO_MEMORY,
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingJob:
    """A training task with its inputs, which are readable until the update is written.

    `received` and `kept` are groups in the sub-model's coordinates, `channel_map` is the full network's.
    `board` is the directory above `/proc` and `/sys`, which give the free memory. `graphs` are the files of
    the task's ONNX graphs by the names of their blobs. `still` is what no device trains, if there is any.
    """

    task: messages.TrainTask
    plan: strategy.TrainingPlan
    data: LocalData
    received: Groups
    kept: Groups
    channel_map: submodel.ChannelMap
    board: Path
    on_epoch: Callable[[results.EpochReport], None]
    should_stop: Callable[[], bool]
    checkpoint: checkpoints.EpochCheckpoint | None = None
    graphs: Mapping[str, Path] = field(default_factory=dict)
    still: feature_cache.StillPart | None = None


def cohort_key(job: TrainingJob) -> Hashable:
    """What jobs have in common that are trained in common steps; data, seeds and weights may differ."""
    task, data = job.task, job.data.train
    plan = job.plan.model_copy(update={"seed": 0})
    settings = [value.model_dump_json() for value in (task.model, task.spec, plan)]
    shapes = tuple((name, kind_of(job.received["model"], name)[1]) for name in job.received["model"])
    groups = tuple(sorted(job.received))
    still = None if job.still is None else job.still.name
    return *settings, task.trained, task.adapters is None, shapes, groups, still, data.task, data.input_shape


@dataclass(frozen=True, eq=False)
class Trained:
    """A finished training: `delta` is trained minus received, computed when read, before the next training.

    `groups` are sent with the model, `kept` stay on the device; `metrics` are complete. `before` and `after`
    are the evaluations on held-out data. `factors` are those of the changes that have a low rank.
    """

    delta: Arrays
    groups: Groups
    kept: Groups
    metrics: TrainingMetrics
    before: results.Evaluation = results.NOTHING
    after: results.Evaluation = results.NOTHING
    factors: Mapping[str, Factors] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        result: results.TrainingResult,
        before: results.Evaluation,
        after: results.Evaluation,
        *,
        delta: Arrays,
        features: KeptFeatures | None = None,
    ) -> "Trained":
        """A result with the evaluations before and after it."""
        measured = {
            "received_loss": results.bound_loss(before.loss),
            "accuracy": after.accuracy,
            "measured_on": after.examples,
            "features": features,
            "metrics": {
                name: value for name, value in after.metrics.items() if results.bound_loss(value) is not None
            },
        }
        metrics = result.metrics.model_copy(update=measured)
        changes = with_products(delta, result.factors)
        return cls(changes, result.groups, result.kept, metrics, before, after, result.factors)


class Trainer(Protocol):
    """Trains tasks; its methods are never called from two threads at once."""

    name: ClassVar[TrainerName]

    def check(self, task: messages.TrainTask) -> None:
        """Raise `PeerError` for a task that this trainer cannot do."""

    def train(self, job: TrainingJob) -> Trained:
        """Train the received sub-model on the device's data, and evaluate it before and after."""

    def train_together(
        self, jobs: Sequence[TrainingJob], *, measured: bool = True
    ) -> "Sequence[Trained | Exception | None]":
        """Train jobs of one `cohort_key` in common steps: the result of each, the error that it met, or None.

        A job without either is left to `train`, or to `score`. Unless `measured`, nothing is evaluated. All
        deltas may be read until the next training.
        """
        return [None] * len(jobs)

    def outputs(self, job: TrainingJob, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The received network's outputs [N, L] for preprocessed inputs [N, ...], N at least 1."""

    def score(self, job: TrainingJob) -> Groups:
        """The groups that objectives make in one pass over the device's data; the plan has no epochs."""
