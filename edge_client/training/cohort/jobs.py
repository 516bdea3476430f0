"""Training jobs of several devices as one training of a stack of their networks."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from edge_client.data.dataset import LabelledData
from edge_client.models.modes import device_of, smallest_batch
from edge_client.pruning.surgery import trained_since
from edge_client.training.cohort.stack import Member, Stack, TrainsAlone
from edge_client.training.cohort.training import Client, CohortTraining, set_up
from edge_client.training.epochs import count_steps
from edge_client.training.evaluation import Features, evaluate
from edge_client.training.losses import loss_of
from edge_client.training.objectives.base import LocalObjective, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.results import NOTHING, Evaluation, TrainingResult, TrainingStopped
from edge_client.training.step_capture import KNOWN_PARTS
from edge_client.training.torch_trainer import EVALUATION_BATCH, ModuleJob
from edge_client.training.trainer import Trained, TrainingJob

log = logging.getLogger(__name__)

_said = set[str]()


@dataclass(frozen=True, eq=False)
class _Joined:
    """A job in a cohort: its number, its client, and the evaluation before the training."""

    place: int
    job: ModuleJob
    client: Client
    before: Evaluation


def train_jobs(
    jobs: Sequence[TrainingJob], load: Callable[[TrainingJob], ModuleJob], *, measured: bool
) -> list[Trained | Exception | None]:
    """As `Trainer.train_together`; `load` puts the weights that a job has received into its module."""
    results: list[Trained | Exception | None] = [None] * len(jobs)
    cohort = _Cohort(len(jobs), measured)
    for place in sorted(range(len(jobs)), key=lambda place: -len(jobs[place].data.train)):
        try:
            cohort.join(place, load(jobs[place]))
        except TrainsAlone as reason:
            say_alone(str(reason))
        except Exception as error:
            # It ends this device's task alone.
            results[place] = error
    for joined, result in cohort.train():
        member, job = joined.client.member, joined.job
        after = _evaluate(member, job) if measured else NOTHING
        delta = trained_since(member.module, job.received["model"])
        kept = job.features[-1] if job.features else None
        results[joined.place] = Trained.of(result, joined.before, after, delta=delta, features=kept)
    return results


def say_alone(reason: str) -> None:
    """Log, once in this process, why devices do not train together."""
    if reason and reason not in _said:
        _said.add(reason)
        log.warning("devices train one by one: %s", reason)


class _Cohort:
    """The jobs of one cohort, added in the order of their examples, the most first."""

    def __init__(self, size: int, measured: bool) -> None:
        self._size, self._measured = size, measured
        self._joined = list[_Joined]()
        self._stack: Stack | None = None

    def join(self, place: int, job: ModuleJob) -> None:
        """Raises `TrainsAlone`, and whatever this device's data and weights raise."""
        _check(job)
        network = job.features[0].rest if job.features else job.module
        before = _evaluate(Member(job.module, network), job) if self._measured else NOTHING
        if self._stack is None:
            self._stack = Stack(job.module, network, self._size)
        member = self._stack.add(len(self._joined))
        context, count = _context(job, job.data.train), job.task.model.num_classes
        client = set_up(member, job.plan, context, outputs=count, trained=job.task.trained)
        self._joined.append(_Joined(place, job, client, before))

    def train(self) -> list[tuple[_Joined, TrainingResult]]:
        """Train what has joined; without results if that is impossible."""
        if self._stack is None or len(self._joined) < 2:
            return []
        job = self._joined[0].job
        clients, loss = [joined.client for joined in self._joined], loss_of(job.data.train.task)
        try:
            training = CohortTraining(self._stack, clients, loss, job.should_stop, trained=job.task.trained)
            return list(zip(self._joined, training.run(), strict=True))
        except TrainingStopped:
            raise
        except Exception as error:
            # Any network and any loss can be trained one by one, and that says whose fault this is.
            say_alone(f"{type(error).__name__}: {error}".partition("\n")[0])
            return []


def _check(job: ModuleJob) -> None:
    """Raise `TrainsAlone` for a job whose steps cannot be those of a cohort."""
    if job.checkpoint is not None:
        raise TrainsAlone("the training writes checkpoints")
    if job.task.adapters is not None:
        raise TrainsAlone("changes of a low rank have steps of their own")
    if not len(job.data.train):
        raise TrainsAlone("")
    if job.micro_batch is not None:
        raise TrainsAlone("the memory of a board takes parts of batches")
    if job.parts is not None and any(map(_looks_inside, build_objectives(job.plan.objectives))):
        raise TrainsAlone("an objective looks inside what follows frozen layers")
    if job.plan.batch_size < smallest_batch(job.module, job.task.trained):
        raise TrainsAlone("batches are too small")
    for part in job.module.modules():
        if not type(part).__module__.startswith(KNOWN_PARTS):
            raise TrainsAlone(f"the network has parts of its own ({type(part).__name__})")


def _looks_inside(objective: LocalObjective) -> bool:
    return type(objective).why_before is not LocalObjective.why_before


def _context(job: ModuleJob, data: LabelledData) -> TrainingContext:
    """As in `edge_client.training.loop`."""
    device = device_of(job.module)
    inputs = data.inputs() if job.features is None else job.features[0].rows
    targets = torch.from_numpy(data.targets(inputs)).to(device)
    examples = torch.from_numpy(inputs).to(device)
    steps = count_steps(job.plan, len(targets), smallest=smallest_batch(job.module, job.task.trained))
    return TrainingContext(
        job.plan, job.received, job.kept, steps, examples, targets, job.task.spec, job.channel_map
    )


def _evaluate(member: Member, job: ModuleJob) -> Evaluation:
    features = Features(member.network, job.features[1].rows) if job.features else None
    return evaluate(member.module, job.data.held_out, features=features, batch_size=EVALUATION_BATCH)
