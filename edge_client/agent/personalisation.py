"""Training of a delivered sub-model on the device's own data, and the choice of what it exports.

The personal model begins with the shared one and keeps its answers (`distil`); the one halfway between them
is their mean (Wortsman et al. 2022, Robust Fine-Tuning of Zero-Shot Models).
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
    HALFWAY,
    MAX_COMPARED,
    PERSONAL,
    SHARED,
    Candidate,
    choose,
    is_uneven,
    measure_candidate,
    offsets_of,
    some,
)
from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import learning_task
from edge_client.data.tasks.words import METRICS
from edge_client.training.results import EpochReport, TrainingGivenUp
from schemas.counted import format_count
from schemas.errors import ConfigError, PeerError
from schemas.messages import DeliverTask, TrainTask
from schemas.tensors.arrays import ComputedArrays, add_changes, kind_of, rows_of
from schemas.tensors.blobs import Arrays, Groups
from schemas.values import Personalisation

log = logging.getLogger(__name__)

TIME_SHARE = 0.4  # Share of the time that the server still waits which the training may take


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
        return arrays, _report_unchanged(task, why)
    try:
        judge = _Judge(tuning, training, received)
        shared = judge.of(SHARED, arrays)
        if unasked and not shared.error:
            return arrays, None
        others = [*_candidates(task, tuning, training, received, judge)]
    except (PeerError, ConfigError, TrainingGivenUp) as error:
        return arrays, _report_unchanged(task, str(error))
    kept = choose(shared, others)
    found = _explain_choice(tuning, shared, kept, others[-1])
    log.info("round %d: personalised: %s", task.round, note_of(found, len(training.data.held_out)))
    return kept.arrays, found


def _is_needless(task: DeliverTask, training: DeviceTraining) -> bool:
    """Whether there are too few examples, or their classes are about equally frequent."""
    data, fewest = training.data, training.context.fewest_to_train
    return len(data.train) < max(1, fewest) or not is_uneven(data, task.model.num_classes)


def _nothing_to_go_by(training: DeviceTraining) -> str:
    data = training.data
    counts = {"to train on": len(data.train), "held out to compare with": len(data.held_out)}
    return next((f"there are no examples {what}" for what, count in counts.items() if not count), "")


def _report_unchanged(task: DeliverTask, why: str) -> Personalisation:
    level = logging.INFO if task.where_classes_differ else logging.WARNING
    log.log(level, "the model is exported as received, without training on this device's data: %s", why)
    return Personalisation(kept=False, why=why[:500])


def _candidates(
    task: DeliverTask, tuning: TrainTask, training: DeviceTraining, received: Groups, judge: "_Judge"
) -> Iterator[Candidate]:
    """The models that may take the place of the shared one."""
    personal, offsets = _train_personal(tuning, training, received), offsets_of(task, training.data)
    for name, share in ((HALFWAY, 0.5), (PERSONAL, 1.0)):
        yield judge.of(name, _between(received["model"], personal, share), offsets)


def _between(first: Arrays, second: Arrays, share: float) -> Arrays:
    """The arrays at this share of the way from the first to the second, made when read, to save memory."""

    def rows(name: str, start: int, stop: int) -> NDArray[np.float32]:
        begin, end = rows_of(first, name, start, stop), rows_of(second, name, start, stop)
        return np.asarray(begin + share * (end - begin), np.float32)

    return ComputedArrays({name: kind_of(first, name) for name in second}, rows)


def _train_personal(task: TrainTask, training: DeviceTraining, received: Groups) -> Arrays:
    """The received arrays after the task's training; raises `TrainingGivenUp` if it takes too long."""
    patient = replace(training, on_epoch=_Patience(training, task))
    changes = patient.train_shared(task, received, {}).delta
    # Read before models are compared, which changes what these are computed from.
    return {name: np.asarray(array) for name, array in add_changes(received["model"], changes).items()}


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
    """Measures models on the held-out examples."""

    def __init__(self, task: TrainTask, training: DeviceTraining, received: Groups) -> None:
        self._task, self._training, self._received = task, training, received
        self._held_out = some(training.data.held_out)
        self._inputs = self._held_out.inputs()

    def of(self, name: str, arrays: Arrays, offsets: NDArray[np.float32] | float = 0.0) -> Candidate:
        """The candidate with these arrays, and offsets of the scores."""
        outputs = self._training.outputs(self._task, {**self._received, "model": arrays}, self._inputs)
        return measure_candidate(name, arrays, self._held_out, outputs + offsets, self._inputs)


def _explain_choice(
    tuning: TrainTask, shared: Candidate, kept: Candidate, personal: Candidate
) -> Personalisation:
    """What the choice was, with the leading figure of the shared model and of what was kept or refused."""
    metric = learning_task(tuning.model.task).leading(shared.figures)
    shown = personal if kept is shared else kept
    before, after = (found.figures.get(metric.name) for found in (shared, shown))
    return Personalisation(
        kept=kept is not shared,
        epochs=tuning.training.local_epochs,
        metric=metric.name,
        before=before,
        after=after,
        why=_why_not(metric, before, after) if kept is shared else "",
        model=kept.name,
    )


def _why_not(metric: Metric, before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return f"{metric.name} is not defined on the examples that are held out"
    return f"{metric.name} {metric.text(after)}, {metric.text(before)} before"


def note_of(found: Personalisation, examples: int) -> str:
    """Which model was kept and by how much, for the log and for the exported file."""
    if not found.kept or found.before is None or found.after is None:
        return f"{SHARED}: {found.why}" if found.why else SHARED
    text = METRICS[found.metric].text
    figures = f"{found.metric} {text(found.after)}, {text(found.before)} as received"
    compared = format_count(min(examples, MAX_COMPARED), "held-out example")
    return f"{found.model}: {figures}, of {compared}"
