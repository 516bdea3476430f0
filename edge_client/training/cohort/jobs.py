"""Training jobs of several devices as one training of a stack of their networks."""

import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.models import modes
from edge_client.pruning.surgery import changes_of
from edge_client.training import epochs, step_capture
from edge_client.training.cohort.stack import Member, Stack, TrainsAlone
from edge_client.training.cohort.training import Client, CohortTraining, set_up
from edge_client.training.evaluation import Features, evaluate, loss_of
from edge_client.training.objectives.base import TrainingContext
from edge_client.training.results import NOTHING, Evaluation, TrainingResult, TrainingStopped
from edge_client.training.torch_trainer import EVALUATION_BATCH, ModuleJob, TorchTrainer
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


class CohortTrainer(TorchTrainer):
    """Training with torch, and of several devices in common steps: for simulations alone."""

    def train_together(
        self, jobs: Sequence[TrainingJob], *, measured: bool = True
    ) -> list[Trained | Exception | None]:
        return _train_jobs(jobs, self.with_module, measured=measured)


def _train_jobs(
    jobs: Sequence[TrainingJob], load: Callable[[TrainingJob], ModuleJob], *, measured: bool
) -> list[Trained | Exception | None]:
    results: list[Trained | Exception | None] = [None] * len(jobs)
    with ExitStack() as joining:
        cohort = _Cohort(len(jobs), measured, joining)
        for place in sorted(range(len(jobs)), key=lambda place: -len(jobs[place].data.train)):
            try:
                cohort.join(place, load(jobs[place]))
            except TrainsAlone as reason:
                say_alone(str(reason))
            except Exception as error:
                # It ends this device's task alone.
                results[place] = error
    for joined, result, sent in cohort.train():
        job = joined.job
        after = _evaluate(joined.client.member, job) if measured else NOTHING
        delta = changes_of(sent, job.received["model"])
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

    def __init__(self, size: int, measured: bool, joining: ExitStack) -> None:
        self._size, self._measured, self._joining = size, measured, joining
        self._joined = list[_Joined]()
        self._stack: Stack | None = None

    def join(self, place: int, job: ModuleJob) -> None:
        """Raises `TrainsAlone`, and whatever this device's data and weights raise."""
        _check(job)
        network = job.features[0].rest if job.features else job.module
        before = _evaluate(Member(job.module, network), job) if self._measured else NOTHING
        first = self._stack is None
        stack = self._stack or self._start(job, network)
        # Equal names of what no device trains stand for equal numbers.
        still = job.still is not None and job.still.arrays.issuperset(stack.shared)
        member = stack.add(len(self._joined), alike=first or still)
        context, count = self._context(job, job.data.train), job.task.model.num_classes
        client = set_up(member, job.plan, context, outputs=count, smallest=self._smallest)
        self._joined.append(_Joined(place, job, client, before))

    def train(self) -> list[tuple[_Joined, TrainingResult, dict[str, Tensor]]]:
        """Train what has joined; the results with the trained tensors, none if that is impossible."""
        if self._stack is None or len(self._joined) < 2:
            return []
        job = self._joined[0].job
        clients, loss = [joined.client for joined in self._joined], loss_of(job.data.train.task)
        try:
            training = CohortTraining(self._stack, clients, loss, job.should_stop, trained=job.task.trained)
            sent = map(self._stack.sent_by, range(len(clients)))
            return list(zip(self._joined, training.run(), sent, strict=True))
        except TrainingStopped:
            raise
        except Exception as error:
            # Any network and any loss can be trained one by one, and that says whose fault this is.
            say_alone(f"{type(error).__name__}: {error}".partition("\n")[0])
            return []

    def _start(self, job: ModuleJob, network: nn.Module) -> Stack:
        """The stack, for a module that is in training mode until all have joined."""
        for part in job.module.modules():
            if not type(part).__module__.startswith(step_capture.KNOWN_PARTS):
                raise TrainsAlone(f"the network has parts of its own ({type(part).__name__})")
        self._smallest = modes.smallest_batch(job.module, job.task.trained)
        if job.plan.batch_size < self._smallest:
            raise TrainsAlone("batches are too small")
        network.train()
        self._joining.enter_context(modes.training_only(job.module, job.task.trained))
        self._stack = Stack(job.module, network, self._size)
        return self._stack

    def _context(self, job: ModuleJob, data: LabelledData) -> TrainingContext:
        """As in `edge_client.training.loop`."""
        device = modes.device_of(job.module)
        features = job.features[0] if job.features else None
        inputs = data.inputs() if features is None else features.rows
        targets = torch.from_numpy(data.targets(inputs)).to(device)
        examples = torch.from_numpy(inputs).to(device)
        steps = epochs.count_steps(job.plan, len(targets), smallest=self._smallest)
        return TrainingContext(
            job.plan,
            job.received,
            job.kept,
            steps,
            examples,
            targets,
            job.task.spec,
            job.channel_map,
            None if features is None else features.parts,
        )


def _check(job: ModuleJob) -> None:
    """Raise `TrainsAlone` for a job whose steps cannot be those of a cohort."""
    if job.checkpoint is not None:
        raise TrainsAlone("the training writes checkpoints")
    if job.task.adapters is not None:
        raise TrainsAlone("changes of a low rank have steps of their own")
    if job.plan.augment:
        raise TrainsAlone("pictures are augmented batch by batch")
    if not len(job.data.train):
        raise TrainsAlone("")
    if job.micro_batch is not None:
        raise TrainsAlone("the memory of a board takes parts of batches")


def _evaluate(member: Member, job: ModuleJob) -> Evaluation:
    features = Features(member.network, job.features[1].rows) if job.features else None
    return evaluate(member.module, job.data.held_out, features=features, batch_size=EVALUATION_BATCH)
