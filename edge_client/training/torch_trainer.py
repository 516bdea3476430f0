"""Training with torch: `OwnTraining`, or a Flower app (`edge_client.training.flower`).

Both change the module's weights in place. Imports torch: import it late.
"""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Protocol
from weakref import WeakKeyDictionary

import torch
from torch import nn

from edge_client.data.dataset import Inputs
from edge_client.models import build, frozen_part
from edge_client.models.modes import normalises_batches
from edge_client.pruning import slicing, surgery
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.system.hardware.memory import Memory, memory
from edge_client.system.process_memory import give_back
from edge_client.training import cost_model, epochs, results, step_capture, trainer
from edge_client.training.evaluation import Features, evaluate, features_of, logits, split_for
from edge_client.training.feature_cache import FeatureCache
from edge_client.training.loop import train
from edge_client.training.objectives.registry import build_objectives
from schemas import errors, messages, strategy, values
from schemas.messages.tasks import FIXED
from schemas.tensors.arrays import Groups

EVALUATION_BATCH = 64  # larger batches would need more memory than training, and save no time


@dataclass(frozen=True, eq=False)
class ModuleJob(trainer.TrainingJob):
    """A training job with the module that has the received weights."""

    module: nn.Module
    recorder: step_capture.Recorder | None = None

    @cached_property
    def micro_batch(self) -> int | None:
        """Number of examples per forward pass that fits into memory before training; None for all."""
        shape, count = self.task.model.input_shape, len(self.data.train)
        trained, adapters = self.task.trained, self.task.adapters
        needs = partial(micro_batch, self.module, shape, self.plan, trained=trained, adapters=adapters)
        fit = partial(needs, examples=count)
        with suppress(errors.PeerError):
            if fit(memory=memory(self.board)) is None:
                return None
        # This process may still hold memory of its last task.
        give_back()
        return fit(memory=memory(self.board))

    @cached_property
    def parts(self) -> frozen_part.SplitNetwork | None:
        """The module in two parts, of which the rest alone runs in steps; None where all layers run."""
        task, still = self.task, self.still
        trained: Collection[str] | None = task.trained
        if trained is not None and still is not None:
            # Behind what other tiers train, features would be others in each round.
            trained = frozenset(self.received["model"]) - still.arrays
        own = slicing.submodel_map(self.channel_map, task.spec)
        shape, received = task.model.input_shape, self.received
        return split_for(self.module, trained, shape, self.plan, self.data.train, received, own)

    @cached_property
    def features(self) -> tuple[Features, Features, values.KeptFeatures] | None:
        """Those of the examples to train on and of those held out, and what is kept; None without `parts`."""
        split, data, still = self.parts, self.data, self.still
        if split is None:
            return None
        cache, name = (FeatureCache(), "") if still is None else (still.cache, f"{still.owner} {still.name}")
        parts, kind = (data.train, data.held_out), self.plan.feature_type
        (train, held_out), kept = features_of(split, parts, cache, name, kind)
        return train, held_out, kept


class LocalWork(Protocol):
    """Trains tasks; its methods are never called from two threads at once."""

    def check(self, task: messages.TrainTask) -> None:
        """Raise `PeerError` for a task that this work cannot do."""

    def train(self, job: ModuleJob) -> results.TrainingResult:
        """Train `job.module` in place."""

    def evaluate(self, job: ModuleJob) -> results.Evaluation:
        """Loss and accuracy of `job.module` on data that is never trained on."""


class OwnTraining:
    """This package's training loop."""

    def check(self, task: messages.TrainTask) -> None:
        with trainer.decline_unknown():
            epochs.check_optimizer(task.training.optimizer)
            build_objectives(task.training.objectives)

    def train(self, job: ModuleJob) -> results.TrainingResult:
        return train(
            job.module,
            job.data.train,
            job.plan,
            received=job.received,
            kept=job.kept,
            on_epoch=job.on_epoch,
            should_stop=job.should_stop,
            checkpoint=job.checkpoint,
            recorder=job.recorder,
            micro_batch=job.micro_batch,
            spec=job.task.spec,
            channel_map=job.channel_map,
            trained=job.task.trained,
            features=job.features[0] if job.features else None,
            adapters=job.task.adapters,
        )

    def evaluate(self, job: ModuleJob) -> results.Evaluation:
        batch_size = min(EVALUATION_BATCH, job.micro_batch or EVALUATION_BATCH)
        features = job.features[1] if job.features else None
        return evaluate(job.module, job.data.held_out, features=features, batch_size=batch_size)


OWN_TRAINING: LocalWork = OwnTraining()


class TorchTrainer(trainer.Trainer):
    """Trains with `work` on modules that are kept for the next task of the same sub-model.

    A `recorder` captures training steps, so that repeating them costs little more than their kernels.
    `threads` is torch's number of threads, its own choice by default.
    """

    name = "torch"

    def __init__(
        self,
        work: LocalWork = OWN_TRAINING,
        *,
        sub_models: SubModelCache | None = None,
        recorder: step_capture.Recorder | None = None,
        threads: int | None = None,
    ) -> None:
        self._work, self._recorder, self._threads = work, recorder, threads
        self._sub_models = sub_models or SubModelCache()

    def check(self, task: messages.TrainTask) -> None:
        with trainer.decline_unknown():
            build.find_factory(task.model.name, what=f"model {task.model.name!r}")
        self._work.check(task)

    def train(self, job: trainer.TrainingJob) -> trainer.Trained:
        own = self.with_module(job)
        before = self._work.evaluate(own)
        result = self._work.train(own)
        own.module.zero_grad(set_to_none=True)
        after, delta = self._work.evaluate(own), surgery.trained_since(own.module, job.received["model"])
        # Other work may have made none.
        made = vars(own).get("features")
        return trainer.Trained.of(result, before, after, delta=delta, features=made[-1] if made else None)

    def outputs(self, job: trainer.TrainingJob, inputs: Inputs) -> Inputs:
        return logits(self.with_module(job).module, inputs, batch_size=EVALUATION_BATCH)

    def score(self, job: trainer.TrainingJob) -> Groups:
        return self._work.train(self.with_module(job)).groups

    def with_module(self, job: trainer.TrainingJob) -> ModuleJob:
        """The job with the weights that it has received in its module."""
        if self._threads:
            torch.set_num_threads(self._threads)
        task, received = job.task, job.received
        fixed = received.get(FIXED)
        module = self._sub_models.get(
            task.model, task.spec, job.channel_map, received["model"], fixed, job.still
        )
        return ModuleJob(**vars(job), module=module, recorder=self._recorder)


# Splits batches into parts that fit into memory; the gradients of the parts are added up.
#
# A batch whose estimated cost (`cost_model`) exceeds the free memory is split into as few parts as possible.
# If single examples do not fit, the task is refused with `no-memory`, and the server assigns a smaller
# sub-model. The mean over a batch is the weighted mean over its parts, so that the step is the same up to
# rounding.
#
# Batches are not split for networks with batch normalisation, which depends on the statistics of a batch, or
# for objectives that decide once per batch; such a task is refused.

MARGIN = 1.2  # factor by which free memory must exceed the estimate, which may be a fifth too low
PER_BATCH = frozenset({"mix"})  # objectives that decide once per batch

_costs: WeakKeyDictionary[nn.Module, dict[tuple[object, ...], cost_model.NetworkCost]] = WeakKeyDictionary()


def micro_batch(
    module: nn.Module,
    input_shape: tuple[int, ...],
    plan: strategy.TrainingPlan,
    *,
    examples: int,
    memory: Memory,
    trained: tuple[str, ...] | None = None,
    adapters: strategy.Adapters | None = None,
) -> int | None:
    """Number of examples per forward pass that fits into memory; None for whole batches.

    Raises `PeerError` with `no-memory`, the needed and the free bytes if nothing fits.
    """
    if memory.free is None or plan.local_epochs == 0 or examples == 0:
        return None
    costs = _costs.setdefault(module, {})
    key = trained, adapters
    if key not in costs:
        costs[key] = cost_model.network_cost(module, input_shape, trained, adapters)
    cost = costs[key]
    whole = min(plan.batch_size, examples)
    is_whole = normalises_batches(module, trained) or any(part.name in PER_BATCH for part in plan.objectives)
    for size in (whole,) if is_whole else trainer.equal_parts(whole):
        # The network and the examples are in memory.
        further = cost.training(plan, examples=examples, batch=size, pixel_bytes=0).total - cost.parameters
        if MARGIN * further <= memory.free:
            return None if size == whole else size
    raise trainer.no_memory(MARGIN * further, memory.free, size)
