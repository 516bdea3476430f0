"""A training on this device: the data, the graphs, the checkpoints and the trainer of its task."""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edge_client.agent.settings import TaskContext
from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.data.tasks import words
from edge_client.data.tasks.learning_task import Metric
from edge_client.data.tasks.registry import learning_task, losses_of
from edge_client.pruning.channel_selection import best_spec, group_scores
from edge_client.pruning.update_coordinates import in_sub_model
from edge_client.training import choice, requests, results
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.feature_cache import FeatureCache, StillPart
from edge_client.training.trainer import Trainer, TrainingJob
from schemas.errors import ConfigError, PeerError, format_count
from schemas.messages import DeliverTask, TrainTask
from schemas.messages.tasks import FIXED, OWN_STEP, SCORING_STEP, STEP
from schemas.submodel import ChannelMap
from schemas.tensors.arrays import Arrays, ComputedArrays, Groups, add_changes, kind_of, rows_of
from schemas.tensors.files import FileGroups
from schemas.values import Personalisation


@dataclass(frozen=True, eq=False)
class Pruned:
    """A task in the coordinates of what the device trains, with what it received of that, and its scores."""

    task: TrainTask
    received: Groups
    scores: Groups = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class DeviceTraining:
    """Trains sub-models of one task on `data`, which has the task's shape, preprocessing and labels."""

    context: TaskContext
    channel_map: ChannelMap
    data: LocalData
    on_epoch: Callable[[results.EpochReport], None]
    should_stop: Callable[[], bool]
    _caches: dict[int, FeatureCache] = field(default_factory=dict)

    def prune_model(self, task: TrainTask, received: Groups) -> requests.Work[Pruned]:
        """What the device trains of the received model, pruned by its own scores if the task says so."""
        personal = task.personal
        if personal is None or personal.scored_by is None:
            return Pruned(task, received)
        plan = task.training.model_copy(update={"objectives": (personal.scored_by,), "local_epochs": 0})
        scoring = task.model_copy(update={"training": plan})
        job = self._job(scoring, received, {}, step=SCORING_STEP)
        scores = yield requests.TrainingRequest(self._trainer(scoring), job, scores=True)
        ranked = group_scores(scores.get("attention", {}), self.channel_map)
        spec = best_spec(ranked, personal.ratios, self.channel_map)
        own = task.model_copy(update={"spec": spec, "personal": None})
        return Pruned(own, in_sub_model(received, spec, self.channel_map), scores)

    def train_shared(self, task: TrainTask, received: Groups, kept: Groups) -> requests.TrainingRequest:
        """The training of the model that the device shares with the federation."""
        return self._request(task, received, kept)

    def own(self, task: TrainTask, received: Groups) -> requests.TrainingRequest:
        """The training of the device's own model, with checkpoints and a graph of its own, if it has one."""
        return self._request(task, received, {}, own=True)

    def outputs(self, task: TrainTask, received: Groups, inputs: NDArray[np.float32]) -> NDArray[np.float32]:
        """The received model's outputs [N, L] for inputs [N, ...]."""
        return self._trainer(task).outputs(self._job(task, received, {}, step=STEP), inputs)

    def _request(
        self, task: TrainTask, received: Groups, kept: Groups, *, own: bool = False
    ) -> requests.TrainingRequest:
        checkpoints = self.context.checkpoints
        checkpoint = checkpoints.of(task, examples=len(self.data.train), own=own) if checkpoints else None
        step = OWN_STEP if own else STEP
        job = self._job(task, received, kept, step=step, checkpoint=checkpoint)
        return requests.TrainingRequest(self._trainer(task), job)

    def _trainer(self, task: TrainTask) -> Trainer:
        trainer = self.context.trainer or choice.make_trainer()
        trainer.check(task)
        return trainer

    def _job(
        self,
        task: TrainTask,
        received: Groups,
        kept: Groups,
        *,
        step: str,
        checkpoint: EpochCheckpoint | None = None,
    ) -> TrainingJob:
        """A job with the graph `step` as its step graph, where the task has one of that name."""
        graphs = {name: self.context.store.blob_path(ref.digest) for name, ref in task.graphs().items()}
        if step in graphs:
            graphs[STEP] = graphs[step]
        return TrainingJob(
            task=task,
            plan=task.training,
            data=self.data,
            received=received,
            kept=kept,
            channel_map=self.channel_map,
            board=self.context.board,
            on_epoch=self.on_epoch,
            should_stop=self.should_stop,
            checkpoint=checkpoint,
            graphs=graphs,
            still=self._find_still_part(task),
        )

    def _find_still_part(self, task: TrainTask) -> StillPart | None:
        """What no device of the run trains; None if there is nothing."""
        if not task.frozen:
            return None
        refs, context = [task.blobs[increment.blob] for increment in task.frozen], self.context
        arrays = frozenset(FileGroups(context.store.blob_path(refs[0].digest))["model"])
        digests = [ref.digest for ref in (*refs, *([task.blobs[FIXED]] if FIXED in task.blobs else []))]
        # Which channels of trained layers are cut changes from round to round, and nothing that is still.
        cut = task.spec.of_groups(self.channel_map.groups_of(arrays))
        name = f"{task.model.model_dump_json()} {cut.model_dump_json()} {digests}"
        limit = 1_000_000 * task.training.feature_cache_mb
        # One for all passes of a task, so that it knows what they have computed.
        cache = self._caches.setdefault(limit, FeatureCache(context.features, limit=limit))
        return StillPart(arrays, name, cache, context.device)


# Training of a delivered sub-model on the device's own data, and the choice of what it exports.
# Which of several models a device exports: one rule, on examples that the device holds out.

MIN_EXAMPLES = 10  # Held-out examples without which models are not compared
UNEVEN = 2.0  # How many times more a device's classes differ from equally frequent ones than by chance
MAX_COMPARED = 1000  # Held-out examples at most that models are compared on: inputs take memory
SHARED, HALFWAY, PERSONAL = "shared", "halfway", "personal"


@dataclass(frozen=True, eq=False)
class Candidate:
    """A model's mean error and mean loss on held-out examples, and its `figures` of merit."""

    name: str
    arrays: Arrays
    error: float
    loss: float
    figures: Mapping[str, float] = field(default_factory=dict)


def skew(labels: NDArray[np.int64], classes: int) -> float:
    """How far the labels' shares are from equal ones, as a multiple of what chance makes of equal classes.

    Of N labels the mean distance of a class's share p is sqrt(2 p (1 - p) / (pi N)).
    """
    even, count = 1 / classes, max(1, len(labels))
    distance = np.abs(np.bincount(labels, minlength=classes) / count - even).mean()
    return float(distance / math.sqrt(2 * even * (1 - even) / (math.pi * count))) if classes > 1 else 0.0


def class_offsets(labels: NDArray[np.int64], classes: int, odds: float) -> NDArray[np.float32]:
    """What is added to a classifier's scores [classes] where classes are as frequent as these labels.

    Scores are logarithms of probabilities up to a constant, and those change with the frequency of a class as
    that does (Saerens et al. 2002, equation 2.4; the shared model's classes count as equally frequent). Each
    class counts one example more than there are, and at least an `odds`-th of the most frequent one.
    """
    counts = np.bincount(labels, minlength=classes) + 1.0
    return np.asarray(np.log(np.maximum(counts / counts.max(), 1 / odds)), np.float32)


def is_uneven(data: LocalData, classes: int) -> bool:
    """Whether a device's classes are far from equally frequent, and enough are held out to compare models."""
    return len(data.held_out) >= MIN_EXAMPLES and skew(_labels(data), classes) > UNEVEN


def offsets_of(task: DeliverTask, data: LocalData) -> NDArray[np.float32]:
    """The task's `class_offsets` of the device's examples; zeros where it has no use for them."""
    classes, asked = task.model.num_classes, task.class_odds > 1 and learning_task(task.model.task).exclusive
    if not asked or not is_uneven(data, classes):
        return np.zeros(classes, np.float32)
    return class_offsets(_labels(data), classes, task.class_odds)


def useful_offsets(
    task: DeliverTask, data: LocalData, outputs: Callable[[LabelledData], NDArray[np.float32]]
) -> NDArray[np.float32]:
    """The offsets of the outputs, if they are better with them on held-out examples; else zeros."""
    offsets = offsets_of(task, data)
    if not offsets.any():
        return offsets
    compared = some(data.held_out)
    inputs, found = compared.inputs(), outputs(compared)
    shared, fitted = (
        measure_candidate(SHARED, {}, compared, found + shift, inputs) for shift in (0 * offsets, offsets)
    )
    return 0 * offsets if choose(shared, [fitted]) is shared else offsets


def _labels(data: LocalData) -> NDArray[np.int64]:
    return np.concatenate([data.train.labels, data.held_out.labels])


def some(data: LabelledData) -> LabelledData:
    """The data, or `MAX_COMPARED` examples that are evenly spaced in it."""
    if len(data) <= MAX_COMPARED:
        return data
    return data.subset(np.linspace(0, len(data) - 1, MAX_COMPARED).astype(np.int64))


def measure_candidate(
    name: str, arrays: Arrays, data: LabelledData, outputs: NDArray[np.float32], inputs: NDArray[np.float32]
) -> Candidate:
    """The candidate with these outputs [N, L] of the data's inputs [N, ...]."""
    learning, targets = data.learning_task, data.targets(inputs)
    loss = float(losses_of(learning)(outputs, targets).mean())
    errors = np.asarray(learning.errors(data.answers(outputs, targets)), np.float64)
    return Candidate(
        name, arrays, float(errors.mean()), loss, results.Evaluation.of(data, outputs, loss, targets).metrics
    )


def choose(shared: Candidate, others: Sequence[Candidate]) -> Candidate:
    """The model of the lowest loss, of the shared one and those others that make no more errors."""
    return min((shared, *(new for new in others if new.error <= shared.error)), key=lambda each: each.loss)


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
    except (PeerError, ConfigError, results.TrainingGivenUp) as error:
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
    changes = patient.train_shared(task, received, {}).answer().delta
    # Read before models are compared, which changes what these are computed from.
    return {name: np.asarray(array) for name, array in add_changes(received["model"], changes).items()}


class _Patience:
    """Reports epochs, and gives up a training that would take too much of the time that the server waits."""

    def __init__(self, training: DeviceTraining, task: TrainTask) -> None:
        self._report, self._began = training.on_epoch, time.monotonic()
        self._limit_s = math.inf if task.deadline_s is None else TIME_SHARE * task.deadline_s

    def __call__(self, report: results.EpochReport) -> None:
        self._report(report)
        whole_s = (time.monotonic() - self._began) * report.epochs / report.epoch
        if whole_s > self._limit_s:
            raise results.TrainingGivenUp(
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
    text = words.METRICS[found.metric].text
    figures = f"{found.metric} {text(found.after)}, {text(found.before)} as received"
    compared = format_count(min(examples, MAX_COMPARED), "held-out example")
    return f"{found.model}: {figures}, of {compared}"
