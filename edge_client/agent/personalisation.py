"""Training of a delivered sub-model on the device's own data, and the choice of what it exports.

The personal model begins with the shared one and keeps its answers (`distil`); the one halfway between them
is their mean (Wortsman et al. 2022, Robust Fine-Tuning of Zero-Shot Models); a device with torch also trains
alone, from drawn weights.
"""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edge_client.agent.device_training import DeviceTraining
from edge_client.agent.model_choice import (
    ALONE,
    HALFWAY,
    MIN_EXAMPLES,
    MIN_RETAINED,
    PERSONAL,
    SHARED,
    UNEVEN,
    Candidate,
    blends,
    choose,
    skew,
)
from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.losses import losses_of
from edge_client.data.tasks.registry import learning_task
from edge_client.data.tasks.words import METRICS
from edge_client.pruning.update_coordinates import in_sub_model
from edge_client.system.libraries import is_installed
from edge_client.training.results import EpochReport, Evaluation, TrainingGivenUp
from schemas.counted import counted
from schemas.errors import ConfigError, PeerError
from schemas.messages import DeliverTask, TrainTask
from schemas.tensors.arrays import ComputedArrays, added, kind_of, rows_of
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import Personalisation

log = logging.getLogger(__name__)

TIME_SHARE = 0.4
"""Share of the time that the server still waits which each of the two trainings may take."""
BLENDS = 3
"""Blends for each of the device's examples."""
MAX_COMPARED, MAX_BLENDED = 1000, 300
"""Examples at most that models are compared on, and that are blended, of each part: inputs take memory."""


def personalise(
    task: DeliverTask, training: DeviceTraining, received: Groups
) -> tuple[Arrays, Personalisation | None]:
    """The model to export, in the sub-model's coordinates, and what the choice went by (`model_choice`).

    A device that cannot train keeps the received one. None where the task asks for no training, or leaves it
    to a device that has nothing to gain.
    """
    tuning, arrays, unasked = task.as_training(), received["model"], task.where_classes_differ
    if tuning is None or (unasked and _is_needless(task, training)):
        return arrays, None
    if why := _nothing_to_go_by(training):
        return arrays, _unchanged(task, why)
    try:
        judge = _Judge(tuning, training, received)
        shared = judge.of(SHARED, arrays)
        if unasked and not shared.errors.any():
            return arrays, None
        others = [*_candidates(task, tuning, training, received, judge)]
    except (PeerError, ConfigError, TrainingGivenUp) as error:
        return arrays, _unchanged(task, str(error))
    kept = choose((shared, *others))
    found = _explained(task, tuning, shared, kept, others[0])
    log.info("round %d: personalised: %s", task.round, found.why or note_of(found, len(shared.errors)))
    return kept.arrays, found


def _is_needless(task: DeliverTask, training: DeviceTraining) -> bool:
    """Whether there are too few examples, or their classes are about equally frequent."""
    data, fewest = training.data, training.context.fewest_to_train
    few = len(data.held_out) < MIN_EXAMPLES or len(data.train) < max(1, fewest)
    return few or skew(_labels(data), task.model.num_classes) <= UNEVEN


def _nothing_to_go_by(training: DeviceTraining) -> str:
    data = training.data
    counts = {"to train on": len(data.train), "held out to compare with": len(data.held_out)}
    return next((f"there are no examples {what}" for what, count in counts.items() if not count), "")


def _unchanged(task: DeliverTask, why: str) -> Personalisation:
    level = logging.INFO if task.where_classes_differ else logging.WARNING
    log.log(level, "the model is exported as received, without training on this device's data: %s", why)
    return Personalisation(kept=False, why=why[:500])


def _candidates(
    task: DeliverTask, tuning: TrainTask, training: DeviceTraining, received: Groups, judge: "_Judge"
) -> Iterator[Candidate]:
    """The models that may take the place of the shared one, in the order of preference."""
    personal = _trained(tuning, training, received)
    yield judge.of(PERSONAL, personal)
    if task.alone is None:
        return
    yield judge.of(HALFWAY, _mean(received["model"], personal))
    alone = tuning.model_copy(update={"training": task.alone})
    try:
        yield judge.of(
            ALONE, _trained(alone, training, {**received, "model": _drawn(alone, training)}, own=True)
        )
    except (PeerError, ConfigError, TrainingGivenUp) as error:
        log.info("round %d: not compared with what this device trains alone: %s", task.round, error)


def _mean(first: Arrays, second: Arrays) -> Arrays:
    """Made when read, to save memory."""

    def rows(name: str, start: int, stop: int) -> NDArray[np.float32]:
        mean = (rows_of(first, name, start, stop) + rows_of(second, name, start, stop)) / 2
        return mean.astype(np.float32)

    return ComputedArrays({name: kind_of(first, name) for name in second}, rows)


def _trained(
    task: TrainTask, training: DeviceTraining, received: Groups, *, own: bool = False
) -> dict[str, NDArray[np.float32]]:
    """The received arrays after the task's training; raises `TrainingGivenUp` if it takes too long."""
    patient = replace(training, on_epoch=_Patience(training, task))
    trained = patient.own(task, received) if own else patient.shared(task, received, {})
    # Read before the next training, which changes what these are computed from.
    return {name: np.asarray(array) for name, array in added(received["model"], trained.delta).items()}


def _drawn(task: TrainTask, training: DeviceTraining) -> Arrays:
    """New weights of the sub-model; raises `PeerError` without torch, which draws them."""
    if (
        training.context.trainer is not None and training.context.trainer.name != "torch"
    ) or not is_installed("torch"):
        raise PeerError("weights are drawn with torch")
    from edge_client.models.build import build_model
    from edge_client.pruning.surgery import arrays_of

    whole = arrays_of(build_model(task.model, seed=task.training.seed))
    known = {name: array for name, array in whole.items() if name in training.channel_map.parameters}
    return in_sub_model({"model": known}, task.spec, training.channel_map)["model"]


class _Patience:
    """Reports epochs, and gives up a training that would take too much of the time that the server waits."""

    def __init__(self, training: DeviceTraining, task: TrainTask) -> None:
        self._report, self._began = training.on_epoch, time.monotonic()
        self._limit_s = math.inf if task.deadline_s is None else TIME_SHARE * task.deadline_s

    def __call__(self, report: EpochReport) -> None:
        self._report(report)
        whole_s = (time.monotonic() - self._began) * report.epochs / report.epoch
        if whole_s > self._limit_s:
            raise TrainingGivenUp(
                f"training takes {whole_s:.0f} s, and the server waits {self._limit_s:.0f} s"
            )


class _Judge:
    """Measures models on the held-out examples, and on blends of the device's examples."""

    def __init__(self, task: TrainTask, training: DeviceTraining, received: Groups) -> None:
        self._task, self._training, self._received = task, training, received
        data, self._learning = training.data, learning_task(task.model.task)
        self._held_out = _some(data.held_out, MAX_COMPARED)
        self._inputs = self._held_out.inputs()
        self._blends: NDArray[np.float32] | None = None
        self._called: NDArray[np.int64] | None = None
        if self._learning.exclusive:
            parts = (_some(part, MAX_BLENDED) for part in (data.train, data.held_out))
            inputs = np.concatenate([part.inputs() for part in parts])
            seed = task.training.seed
            self._blends = np.concatenate([blends(inputs, seed + number) for number in range(BLENDS)])

    def of(self, name: str, arrays: Arrays) -> Candidate:
        """The candidate with these arrays; the shared one comes first."""
        data = self._held_out
        outputs, targets = self._outputs(arrays, self._inputs), data.targets(self._inputs)
        losses = losses_of(self._learning)(outputs, targets)
        found = Evaluation.of(data, outputs, float(losses.mean()), targets)
        errors = np.asarray(self._learning.errors(data.answers(outputs, targets)), np.float64)
        return Candidate(name, arrays, errors, losses, found.metrics, self._retained(arrays))

    def _outputs(self, arrays: Arrays, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._training.outputs(self._task, {**self._received, "model": arrays}, inputs)

    def _retained(self, arrays: Arrays) -> float | None:
        if self._blends is None:
            return None
        called = self._outputs(arrays, self._blends).argmax(1)
        if self._called is None:
            self._called = called
        lacking = ~np.isin(self._called, _labels(self._training.data))
        return float((called == self._called)[lacking].mean()) if lacking.any() else None


def _some(data: LabelledData, most: int) -> LabelledData:
    """The data, or so many examples that are evenly spaced in it."""
    return data if len(data) <= most else data.subset(np.linspace(0, len(data) - 1, most).astype(np.int64))


def _labels(data: LocalData) -> NDArray[np.int64]:
    return np.concatenate([data.train.labels, data.held_out.labels])


def _explained(
    task: DeliverTask, tuning: TrainTask, shared: Candidate, kept: Candidate, personal: Candidate
) -> Personalisation:
    """What the choice was, with the leading figure of the shared model and of what was kept or refused."""
    metric = learning_task(tuning.model.task).leading(shared.figures)
    shown = personal if kept is shared else kept
    before, after = (found.figures.get(metric.name) for found in (shared, shown))
    chooses = task.alone is not None
    return Personalisation(
        kept=kept is not shared,
        epochs=tuning.training.local_epochs,
        metric=metric.name,
        before=before,
        after=after,
        why=_why_not(metric, before, after, shown) if kept is shared else "",
        model=kept.name if chooses else "",
        retained=shown.retained if chooses else None,
    )


def _why_not(metric: Metric, before: float | None, after: float | None, personal: Candidate) -> str:
    if before is None or after is None:
        return f"{metric.name} is not defined on the examples that are held out"
    what = f"{metric.name} {metric.text(after)}, {metric.text(before)} before"
    lost = personal.retained is not None and personal.retained < MIN_RETAINED
    return f"{what}; {personal.retained:.0%} of the answers retained" if lost else what


def note_of(found: Personalisation, examples: int) -> str:
    """Which model was kept and by how much, for the log and for the exported file."""
    if not found.kept or found.before is None or found.after is None:
        return f"{SHARED}: {found.why}" if found.why else SHARED
    text = METRICS[found.metric].text
    figures = f"{found.metric} {text(found.after)}, {text(found.before)} as received"
    compared = counted(min(examples, MAX_COMPARED), "held-out example")
    return f"{found.model or PERSONAL}: {figures}, of {compared}"
