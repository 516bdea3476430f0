"""Local training: one loop for every algorithm, repeatable to the bit from the plan's seed."""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.models.modes import device_of, evaluating, smallest_batch
from edge_client.models.random_state import seeded
from edge_client.training.checkpoint_state import restore, state_of
from edge_client.training.checkpoints import EpochCheckpoint, UnfitCheckpoint
from edge_client.training.epochs import WORK, EpochProgress, epoch_orders, epoch_radius, step_rate
from edge_client.training.losses import Loss, loss_of
from edge_client.training.memory_format import channels_innermost
from edge_client.training.objectives.objective import Batch, LocalObjective, Run, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.optimizer_names import check_optimizer
from edge_client.training.optimizers import OPTIMIZERS, Optimizer
from edge_client.training.results import EpochReport, TrainingResult, TrainingStopped, bounded, merge_groups
from edge_client.training.sharpness import step_gradients
from edge_client.training.step_capture import Examples, Recorder, Step
from edge_client.training.switched_steps import SwitchedSteps
from schemas.errors import ConfigError
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.blobs import Groups

Passes = Callable[[Examples], tuple[Tensor, Tensor]]  # to the task's loss, and that after all objectives

GATHERED_BYTES = 128 * 1024  # bytes of examples that are copied at once, on top of the training's memory


def train(
    module: nn.Module,
    data: LabelledData,
    plan: TrainingPlan,
    *,
    received: Groups | None = None,
    kept: Groups | None = None,
    on_epoch: Callable[[EpochReport], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint: EpochCheckpoint | None = None,
    recorder: Recorder | None = None,
    micro_batch: int | None = None,
    spec: SubModelSpec | None = None,
    channel_map: ChannelMap | None = None,
) -> TrainingResult:
    """Train `module` in place for the plan's local epochs; equal seeds give equal weights, bit by bit.

    `received` and `kept` are the groups of the task and of this device's last round, for the objectives.
    Without epochs, objectives see every batch once in forward passes. The loss is that of the
    data's learning task, the last epoch's mean per example, None if not finite; seconds are wall time. A
    `checkpoint` resumes after its last epoch, and a `recorder` makes plain steps faster, both with the same
    bits. `micro_batch` is the number of examples per forward pass; the result is the same up to rounding (see
    `torch_trainer`). `spec` is the sub-model that the module is, and `channel_map` the full network's, for
    objectives that train parts of it.
    Raises `ConfigError` for an impossible plan, `TrainingStopped` once `should_stop()` (called per batch),
    and `UnfitCheckpoint`; the module must not be used after an error.
    """
    progress = EpochProgress()
    check_optimizer(plan.optimizer)
    if plan.batch_size < smallest_batch(module):
        raise ConfigError("batch-size 1 cannot train a model with batch normalisation: use 2 or more")
    objectives = build_objectives(plan.objectives)
    examples = _examples(module, data)
    with channels_innermost(module.train(), examples.inputs), _clean_up(module, objectives, seed=plan.seed):
        given = (received or {}, kept or {}, _steps(module, len(data), plan))
        own = (spec or SubModelSpec(), channel_map)
        context = TrainingContext(plan, *given, examples.inputs, examples.labels, *own)
        optimizer, loss = _set_up(module, objectives, context), loss_of(data.task)
        _resume(progress, checkpoint, module, optimizer, objectives)
        passes = partial(_forward, module, objectives=objectives, loss=loss)
        kept_steps = recorder if micro_batch is None else None
        make = partial(_make_step, kept_steps, module, optimizer, objectives, loss, passes, micro_batch)
        steps, first = cache(make), progress.done
        share = partial(_share, objectives, own=own[0].share(channel_map) if channel_map else 1.0)
        for number, batches in enumerate(_epochs(module, examples, plan, done=first), first):
            if number < progress.done:
                # A sharpness-aware epoch took the place of this one.
                continue
            radius = epoch_radius(plan, progress.done)
            paced = partial(_pace, optimizer, plan, progress.steps, steps(radius), share)
            found = _run_epoch(batches, paced, objectives, should_stop=should_stop)
            progress.add(*found, epochs=WORK if radius else 1)
            if checkpoint is not None:
                checkpoint.save(partial(state_of, module, optimizer, objectives, **progress.figures()))
            if on_epoch is not None:
                on_epoch(progress.report(plan))
        if plan.local_epochs == 0 and objectives:
            _look(module, examples, plan, objectives, passes, should_stop=should_stop)
        groups = merge_groups(objective.finish() for objective in objectives)
        keeping = merge_groups(objective.keep() for objective in objectives)
    return TrainingResult(groups, progress.metrics(len(data)), keeping)


def _make_step(
    recorder: Recorder | None,
    module: nn.Module,
    optimizer: Optimizer,
    objectives: Sequence[LocalObjective],
    loss: Loss,
    passes: Passes,
    micro_batch: int | None,
    radius: float,
) -> Step:
    """The steps of a radius: recorded where no objective does more than choose the step's network."""
    if recorder is not None and len(objectives) == 1 and objectives[0].switches():
        return SwitchedSteps(recorder, module, optimizer, objectives[0], loss, radius=radius)
    step: Step = partial(_step, module, optimizer, objectives, passes, micro_batch, radius)
    if recorder is not None and not objectives:
        return recorder.steps(module, optimizer, step, loss, radius=radius)
    return step


def _resume(
    progress: EpochProgress,
    checkpoint: EpochCheckpoint | None,
    module: nn.Module,
    optimizer: Optimizer,
    objectives: Sequence[LocalObjective],
) -> None:
    saved = checkpoint.load() if checkpoint is not None else None
    if checkpoint is None or saved is None:
        return
    try:
        restore(saved, module, optimizer, objectives)
    except UnfitCheckpoint:
        # Without the checkpoint the next attempt can start anew.
        checkpoint.drop()
        raise
    progress.resume(saved)


@contextlib.contextmanager
def _clean_up(module: nn.Module, objectives: Sequence[LocalObjective], *, seed: int) -> Iterator[None]:
    """Seed the random generators inside and restore them after; always close the objectives."""
    device = device_of(module)
    with contextlib.ExitStack() as stack:
        # Dropout, new attention modules and a user's network draw from the global generators.
        stack.enter_context(seeded(seed, [device] if device.type == "cuda" else []))
        for objective in objectives:
            stack.callback(objective.close)
        yield


def _examples(module: nn.Module, data: LabelledData) -> Examples:
    device, inputs = device_of(module), data.inputs()
    return Examples(torch.from_numpy(inputs).to(device), torch.from_numpy(data.targets(inputs)).to(device))


def _set_up(module: nn.Module, objectives: Sequence[LocalObjective], context: TrainingContext) -> Optimizer:
    module.train()
    parameters = list(module.parameters())
    for objective in objectives:
        parameters.extend(objective.setup(module, context))
    return OPTIMIZERS[context.plan.optimizer](parameters, context.plan)


def _steps(module: nn.Module, count: int, plan: TrainingPlan) -> int:
    """Number of optimizer steps of the plan on `count` examples."""
    full, rest = divmod(count, plan.batch_size)
    return plan.local_epochs * (full + (rest >= smallest_batch(module)))


def _epochs(
    module: nn.Module, examples: Examples, plan: TrainingPlan, *, done: int = 0
) -> Iterator[Iterator[Examples]]:
    """The batches of each epoch after the first `done`, whose random orders are drawn and skipped."""
    count = len(examples.labels)
    if count == 0:
        return
    smallest = smallest_batch(module)
    for shuffled in islice(epoch_orders(plan.seed, count), done, plan.local_epochs):
        order = torch.from_numpy(shuffled).to(examples.labels.device)
        yield (batch for batch in _batches(examples, order, plan.batch_size) if len(batch.labels) >= smallest)


def _batches(examples: Examples, order: Tensor, size: int) -> Iterator[Examples]:
    """The examples in that order, gathered for several batches at once, which is faster."""
    at_once = max(1, GATHERED_BYTES // max(1, size * examples.inputs[:1].nbytes))
    for chosen in torch.split(order, size * at_once):
        inputs, labels = (tensor.index_select(0, chosen) for tensor in (examples.inputs, examples.labels))
        yield from map(Examples, torch.split(inputs, size), torch.split(labels, size))


def _run_epoch(
    batches: Iterator[Examples],
    step: Callable[[int, Examples], Tensor],
    objectives: Sequence[LocalObjective],
    *,
    should_stop: Callable[[], bool],
) -> tuple[float | None, int]:
    """One pass over the batches, as numbered steps; returns the mean loss per example and their number."""
    losses, counts = list[Tensor](), list[int]()
    for objective in objectives:
        objective.start_epoch()
    for examples in batches:
        if should_stop():
            raise TrainingStopped("local training was stopped")
        losses.append(step(len(losses), examples))
        counts.append(len(examples.labels))
    return bounded(_mean(losses, counts)), len(losses)


def _pace(
    optimizer: Optimizer,
    plan: TrainingPlan,
    before: int,
    step: Step,
    share: Callable[[], float],
    number: int,
    examples: Examples,
) -> Tensor:
    """The epoch's step `number` at its learning rate, after `before` steps in earlier epochs."""
    optimizer.rate = step_rate(plan, before + number, share())
    return step(examples)


def _share(objectives: Sequence[LocalObjective], *, own: float) -> float:
    """The share of the full network's channels that the next step trains; the module has `own`."""
    return own * math.prod(objective.share() for objective in objectives)


def _mean(losses: list[Tensor], counts: list[int]) -> float | None:
    """The mean per example of the batches' means, fetched from the device at once."""
    if not losses:
        return None
    each = torch.stack(losses).cpu().float().numpy() * np.array(counts, dtype=np.float32)
    # Added one by one, so that the bits depend only on the order of the steps.
    return float(np.add.accumulate(each)[-1]) / sum(counts)


def _look(
    module: nn.Module,
    examples: Examples,
    plan: TrainingPlan,
    objectives: Sequence[LocalObjective],
    passes: Passes,
    *,
    should_stop: Callable[[], bool],
) -> None:
    """One pass without gradients or batch statistics, for a board that cannot train."""
    once = plan.model_copy(update={"local_epochs": 1})
    for objective in objectives:
        objective.start_epoch()
    with evaluating(module), torch.no_grad():
        for batches in _epochs(module, examples, once):
            for batch in batches:
                if should_stop():
                    raise TrainingStopped("local training was stopped")
                passes(batch)


def _forward(
    module: nn.Module, examples: Examples, *, objectives: Sequence[LocalObjective], loss: Loss
) -> tuple[Tensor, Tensor]:
    """The plain loss, which is comparable between algorithms, and the loss after all objectives."""
    inputs = examples.inputs
    for objective in objectives:
        inputs = objective.prepare(inputs)
    run: Run = module
    for objective in objectives:
        run = objective.network(module, run)
    batch = Batch(module, inputs, examples.labels, run(inputs))
    plain = total = loss(batch.outputs, batch.labels)
    for objective in objectives:
        total = objective.loss(batch, total)
    return plain, total


def _step(
    module: nn.Module,
    optimizer: Optimizer,
    objectives: Sequence[LocalObjective],
    passes: Passes,
    micro_batch: int | None,
    radius: float,
    examples: Examples,
) -> Tensor:
    """One step, sharpness-aware with a `radius` above 0; returns the plain loss."""
    run = partial(_run_passes, examples, passes, micro_batch)
    plain = step_gradients(module, optimizer, run, radius=radius)
    for objective in objectives:
        objective.correct()
    optimizer.step()
    return plain


def _run_passes(examples: Examples, passes: Passes, micro_batch: int | None) -> Tensor:
    """Run both passes; returns the plain loss. Gradients of parts of `micro_batch` examples are added up."""
    if micro_batch is None or micro_batch >= len(examples.labels):
        plain, loss = passes(examples)
        loss.backward()  # type: ignore[no-untyped-call]
        return plain.detach()
    total = torch.zeros((), device=examples.labels.device)
    inputs, labels = (torch.split(tensor, micro_batch) for tensor in (examples.inputs, examples.labels))
    for part in map(Examples, inputs, labels):
        share = len(part.labels) / len(examples.labels)
        plain, loss = passes(part)
        (share * loss).backward()  # type: ignore[no-untyped-call]
        total += share * plain.detach()
    return total


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Limit torch to one thread inside, which is faster for small networks."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
