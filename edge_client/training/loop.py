"""Local training: one loop for every algorithm, repeatable to the bit from the plan's seed."""

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.models.attributes import seed_generators
from edge_client.models.modes import device_of, evaluating, smallest_batch, training_only
from edge_client.training import checkpoints, epochs, evaluation, results, shared_forward, step_capture
from edge_client.training.checkpoint_state import restore, state_of
from edge_client.training.low_rank import make_low_rank
from edge_client.training.memory_format import channels_innermost
from edge_client.training.objectives.base import Batch, Run, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.optimizers import OPTIMIZERS
from edge_client.training.switched_steps import SwitchedSteps
from edge_client.training.training_device import processors_masks
from schemas.errors import ConfigError
from schemas.strategy import Adapters, TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Groups

GATHERED_BYTES = 128 * 1024  # bytes of examples that are copied at once, on top of the training's memory


def train(
    module: nn.Module,
    data: LabelledData,
    plan: TrainingPlan,
    *,
    received: Groups | None = None,
    kept: Groups | None = None,
    on_epoch: Callable[[results.EpochReport], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint: checkpoints.EpochCheckpoint | None = None,
    recorder: step_capture.Recorder | None = None,
    micro_batch: int | None = None,
    spec: SubModelSpec | None = None,
    channel_map: ChannelMap | None = None,
    trained: Collection[str] | None = None,
    features: evaluation.Features | None = None,
    adapters: Adapters | None = None,
) -> results.TrainingResult:
    """Train `module` in place for the plan's local epochs; equal seeds give equal weights, bit by bit.

    `received` and `kept` are the groups of the task and of this device's last round, for the objectives.
    Without epochs, objectives see every batch once in forward passes. The loss is that of the
    data's learning task, the last epoch's mean per example, None if not finite; seconds are wall time. A
    `checkpoint` resumes after its last epoch, and a `recorder` makes plain steps faster, both with the same
    bits. `micro_batch` is the number of examples per forward pass; the result is the same up to rounding (see
    `torch_trainer`). `spec` is the sub-model that the module is, and `channel_map` the full network's, for
    objectives that train parts of it. Only the arrays `trained` change, all by default; the change of
    `adapters` has a low rank. With `features` of the examples, only what follows them is run; no objective
    may read more than outputs, labels and weights.
    Raises `ConfigError` for an impossible plan, `TrainingStopped` once `should_stop()` (called per batch),
    and `UnfitCheckpoint`; the module must not be used after an error.
    """
    training = Training(module, data, plan, recorder, micro_batch, should_stop, trained, features, adapters)
    return training.run(
        TrainingContext(
            plan,
            received or {},
            kept or {},
            training.steps,
            training.examples.inputs,
            training.examples.labels,
            spec or SubModelSpec(),
            channel_map,
            None if features is None else features.parts,
        ),
        on_epoch,
        checkpoint,
    )


class Training:
    """One task's training; `run` may be called once."""

    def __init__(
        self,
        module: nn.Module,
        data: LabelledData,
        plan: TrainingPlan,
        recorder: step_capture.Recorder | None,
        micro_batch: int | None,
        should_stop: Callable[[], bool],
        trained: Collection[str] | None,
        features: evaluation.Features | None,
        adapters: Adapters | None,
    ) -> None:
        self._progress = epochs.EpochProgress()
        epochs.check_optimizer(plan.optimizer)
        self._trained, self._smallest = trained, smallest_batch(module, trained)
        if plan.batch_size < self._smallest:
            raise ConfigError("batch-size 1 cannot train a model with batch normalisation: use 2 or more")
        self.module, self._plan, self._should_stop, self._data = module, plan, should_stop, data
        self._recorder, self._micro_batch = recorder if micro_batch is None else None, micro_batch
        self.objectives, self._loss = build_objectives(plan.objectives), evaluation.loss_of(data.task)
        self._low_rank = make_low_rank(adapters, self.objectives, sharp=plan.sam_radius > 0)
        if self._low_rank is not None:
            self.objectives = (*self.objectives, self._low_rank)
        device, inputs = device_of(module), data.inputs() if features is None else features.rows
        targets = torch.from_numpy(data.targets(inputs)).to(device)
        self.network = module if features is None else features.rest
        self.examples = step_capture.Examples(torch.from_numpy(inputs).to(device), targets)

    @property
    def steps(self) -> int:
        """Number of optimizer steps of the plan."""
        return epochs.count_steps(self._plan, len(self.examples.labels), smallest=self._smallest)

    def run(
        self,
        context: TrainingContext,
        on_epoch: Callable[[results.EpochReport], None] | None,
        checkpoint: checkpoints.EpochCheckpoint | None,
    ) -> results.TrainingResult:
        """Train for the plan's epochs, after those of the checkpoint."""
        module, plan, progress, objectives = self.module, self._plan, self._progress, self.objectives
        # Before `training_only`, which sets the modes of the layers that both have.
        self.network.train()
        partly = self._trained is not None
        with channels_innermost(self.network, self.examples.inputs, partly=partly), self._clean_up():
            self._set_up(context)
            self._resume(checkpoint)
            # Kept here: in an attribute, they would keep this training until the next collection of cycles.
            steps, first = cache(self._make_step), progress.finished_epochs
            for number, batches in enumerate(islice(self._epochs(), first, plan.local_epochs), first):
                if number < progress.finished_epochs:
                    # A sharpness-aware epoch took the place of this one.
                    continue
                radius = epochs.epoch_radius(plan, progress.finished_epochs)
                progress.add(*self._run_epoch(batches, steps(radius)), epochs=epochs.WORK if radius else 1)
                if checkpoint is not None:
                    figures = progress.figures()
                    checkpoint.save(partial(state_of, module, self.optimizer, objectives, **figures))
                if on_epoch is not None:
                    on_epoch(progress.report(plan))
            if plan.local_epochs == 0 and not all(objective.sums for objective in objectives):
                self._look()
            groups = results.merge_groups(objective.finish() for objective in objectives)
            keeping = results.merge_groups(objective.keep() for objective in objectives)
            factors = self._low_rank.factors() if self._low_rank is not None else {}
        return results.TrainingResult(groups, progress.metrics(len(self.examples.labels)), keeping, factors)

    @contextlib.contextmanager
    def _clean_up(self) -> Iterator[None]:
        """Seed the random generators inside and restore them after; always close the objectives."""
        with contextlib.ExitStack() as stack:
            # Dropout, new attention modules and a user's network draw from the global generators.
            device = device_of(self.module)
            stack.enter_context(seed_generators(self._plan.seed, device))
            if device.type != "cpu" and self._recorder is None:
                stack.enter_context(processors_masks(self.module, self.network))
            stack.enter_context(training_only(self.module, self._trained))
            for objective in self.objectives:
                stack.callback(objective.close)
            yield

    def _set_up(self, context: TrainingContext) -> None:
        parameters = [weight for weight in self.network.parameters() if weight.requires_grad]
        for objective in self.objectives:
            parameters.extend(objective.setup(self.module, context))
        if self._low_rank is not None:
            adapted = {id(weight) for weight in self._low_rank.weights.values()}
            parameters = [weight for weight in parameters if id(weight) not in adapted]
        self.optimizer = OPTIMIZERS[self._plan.optimizer](parameters, self._plan)
        channel_map = context.channel_map
        self._own_share = context.spec.share(channel_map) if channel_map else 1.0

    def _resume(self, checkpoint: checkpoints.EpochCheckpoint | None) -> None:
        saved = checkpoint.load_values() if checkpoint is not None else None
        if checkpoint is None or saved is None:
            return
        try:
            restore(saved, self.module, self.optimizer, self.objectives)
        except checkpoints.UnfitCheckpoint:
            # Without the checkpoint the next attempt can start anew.
            checkpoint.drop()
            raise
        self._progress.resume(saved)

    def _make_step(self, radius: float) -> step_capture.Step:
        """The steps of a radius: recorded where no objective does more than choose the step's network."""
        recorder, objectives, given = self._recorder, self.objectives, (self.network, self.optimizer)
        if recorder is not None and len(objectives) == 1 and objectives[0].switches():
            return SwitchedSteps(recorder, *given, objectives[0], self._loss, radius=radius)
        step: step_capture.Step = partial(self.take_step, radius)
        if recorder is not None and not objectives:
            return recorder.steps(*given, step, self._loss, radius=radius)
        return step

    def _epochs(self) -> Iterator[Iterator[step_capture.Examples]]:
        """The batches of each epoch, without end."""
        smallest, size, count = self._smallest, self._plan.batch_size, len(self.examples.labels)
        for shuffled in epochs.epoch_orders(self._plan.seed, count) if count else ():
            order = torch.from_numpy(shuffled).to(self.examples.labels.device)
            batches = (
                self._augmented(shuffled) if self._plan.augment else _batches(self.examples, order, size)
            )
            yield (batch for batch in batches if len(batch.labels) >= smallest)

    def _augmented(self, order: NDArray[np.int64]) -> Iterator[step_capture.Examples]:
        """The batches of an epoch in that order, with the random changes of their steps."""
        first, size, device = self._progress.steps, self._plan.batch_size, self.examples.labels.device
        for step, start in enumerate(range(0, len(order), size), first):
            part = epochs.augmented(self._data.subset(order[start : start + size]), self._plan, step)
            inputs = part.inputs()
            arrays = inputs, part.targets(inputs)
            yield step_capture.Examples(*(torch.from_numpy(array).to(device) for array in arrays))

    def _run_epoch(
        self, batches: Iterator[step_capture.Examples], step: step_capture.Step
    ) -> tuple[float | None, int]:
        """One pass over the batches; returns the mean loss per example, if finite, and the steps' number."""
        losses, counts = list[Tensor](), list[int]()
        for objective in self.objectives:
            objective.start_epoch()
        for examples in batches:
            self._check_going_on()
            # Of the full network's channels, those that the step trains.
            share = self._own_share * math.prod(objective.share() for objective in self.objectives)
            self.optimizer.rate = epochs.step_rate(self._plan, self._progress.steps + len(losses), share)
            losses.append(step(examples))
            counts.append(len(examples.labels))
        return results.bound_loss(_mean(losses, counts)), len(losses)

    def _check_going_on(self) -> None:
        if self._should_stop():
            raise results.TrainingStopped("local training was stopped")

    def _look(self) -> None:
        """One pass without gradients or batch statistics, for a board that cannot train."""
        for objective in self.objectives:
            objective.start_epoch()
        with evaluating(self.module), evaluating(self.network), torch.no_grad():
            for batches in islice(self._epochs(), 1):
                for batch in batches:
                    self._check_going_on()
                    self._losses(batch)

    def _losses(self, examples: step_capture.Examples) -> tuple[Tensor, Tensor]:
        """The plain loss, which is comparable between algorithms, and the loss after all objectives."""
        inputs = examples.inputs
        for objective in self.objectives:
            inputs = objective.prepare(inputs)
        run: Run = self.network
        for objective in self.objectives:
            run = objective.network(self.module, run)
        batch = Batch(self.module, inputs, examples.labels, run(inputs))
        plain = total = self._loss(batch.outputs, batch.labels)
        for objective in self.objectives:
            total = objective.loss(batch, total)
        return plain, total

    def take_step(self, radius: float, examples: step_capture.Examples) -> Tensor:
        """One step, sharpness-aware with a `radius` above 0; returns the plain loss."""
        passes = partial(self._passes, examples)
        plain = shared_forward.step_gradients(self.module, self.optimizer, passes, radius=radius)
        for objective in self.objectives:
            objective.correct()
        self.optimizer.step()
        for objective in self.objectives:
            objective.after_step()
        return plain

    def _passes(self, examples: step_capture.Examples) -> Tensor:
        """Run both passes; returns the plain loss. Gradients of a batch's parts are added up."""
        whole = len(examples.labels)
        if self._micro_batch is None or self._micro_batch >= whole:
            plain, loss = self._losses(examples)
            loss.backward()  # type: ignore[no-untyped-call]
            return plain.detach()
        total = torch.zeros((), device=examples.labels.device)
        parts = (torch.split(tensor, self._micro_batch) for tensor in (examples.inputs, examples.labels))
        for part in map(step_capture.Examples, *parts):
            share = len(part.labels) / whole
            plain, loss = self._losses(part)
            (share * loss).backward()  # type: ignore[no-untyped-call]
            total += share * plain.detach()
        return total


def _batches(examples: step_capture.Examples, order: Tensor, size: int) -> Iterator[step_capture.Examples]:
    """The examples in that order, gathered for several batches at once, which is faster."""
    at_once = max(1, GATHERED_BYTES // max(1, size * examples.inputs[:1].nbytes))
    for chosen in torch.split(order, size * at_once):
        inputs, labels = (tensor.index_select(0, chosen) for tensor in (examples.inputs, examples.labels))
        yield from map(step_capture.Examples, torch.split(inputs, size), torch.split(labels, size))


def _mean(losses: list[Tensor], counts: list[int]) -> float | None:
    """The mean per example of the batches' means, fetched from the device at once."""
    if not losses:
        return None
    return mean_loss(torch.stack(losses).cpu().float().numpy(), counts)


def mean_loss(losses: NDArray[np.float32], counts: Sequence[int]) -> float:
    """The mean per example of the means of batches with so many examples each, at least one batch."""
    each = losses * np.array(counts, dtype=np.float32)
    # Added one by one, so that the bits depend only on the order of the steps.
    return float(np.add.accumulate(each)[-1]) / sum(counts)


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Limit torch to one thread inside, which is faster for small networks."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
