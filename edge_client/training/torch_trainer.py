"""Training with torch: `OwnTraining`, or a Flower app (`edge_client.training.flower`).

Both change the module's weights in place. Imports torch: import it late.
"""

import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import nn

from edge_client.data.dataset import Inputs
from edge_client.models import build, frozen_part
from edge_client.models.modes import normalises_batches
from edge_client.pruning import index_sets, surgery
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.system.process_memory import is_shortage
from edge_client.training import cost_model, epochs, results, step_capture, trainer
from edge_client.training.evaluation import Features, evaluate, features_of, logits, split_for
from edge_client.training.feature_cache import FeatureCache
from edge_client.training.loop import train
from edge_client.training.objectives.registry import build_objectives
from edge_client.training.training_device import PROCESSOR, TrainingDevice
from schemas import errors, messages, strategy, values
from schemas.messages.tasks import FIXED
from schemas.tensors.arrays import Groups

log = logging.getLogger(__name__)

Result = TypeVar("Result")
EVALUATION_BATCH = 64  # larger batches would need more memory than training, and save no time


@dataclass(frozen=True, eq=False)
class ModuleJob(trainer.TrainingJob):
    """A training job with the module that has the received weights, on a device.

    `most` are the examples of a forward pass where more were too many, and `note` says why.
    """

    module: nn.Module
    recorder: step_capture.Recorder | None = None
    device: TrainingDevice = PROCESSOR
    most: int | None = None
    note: str = ""

    @cached_property
    def micro_batch(self) -> int | None:
        """Number of examples per forward pass that fits into memory before training; None for all."""
        fitting = self._fit_batch()
        return fitting if self.most is None else min(self.most, fitting or self.most)

    @property
    def place(self) -> str:
        """Where it is trained, or why not as it should be; empty on a device without an accelerator."""
        return self.note or self.device.name * self.device.is_accelerator

    @property
    def smaller_batch(self) -> int | None:
        """Half of the examples of a forward pass, for the next attempt; None if there can be no fewer."""
        # The estimate itself may have met the lack of memory.
        size = vars(self).get("micro_batch") or self.most or min(self.plan.batch_size, len(self.data.train))
        return None if size < 2 or _stays_whole(self.module, self.plan, self.task.trained) else -(-size // 2)

    def _fit_batch(self) -> int | None:
        shape, count = self.task.model.input_shape, len(self.data.train)
        trained, adapters = self.task.trained, self.task.adapters
        needs = partial(micro_batch, self.module, shape, self.plan, trained=trained, adapters=adapters)
        fit = partial(needs, examples=count)
        with suppress(errors.PeerError):
            if fit(free=self.device.free_bytes(self.board)) is None:
                return None
        # This process may still hold memory of its last task.
        self.device.give_back()
        return fit(free=self.device.free_bytes(self.board))

    @cached_property
    def parts(self) -> frozen_part.SplitNetwork | None:
        """The module in two parts, of which the rest alone runs in steps; None where all layers run."""
        task, still = self.task, self.still
        trained: Collection[str] | None = task.trained
        if trained is not None and still is not None:
            # Behind what other tiers train, features would be others in each round.
            trained = frozenset(self.received["model"]) - still.arrays
        own = index_sets.submodel_map(self.channel_map, task.spec)
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
    `threads` is torch's number of threads, its own choice by default. What the `device` cannot do, for want
    of memory or of a kernel, the processor does.
    """

    name = "torch"

    def __init__(
        self,
        work: LocalWork = OWN_TRAINING,
        *,
        sub_models: SubModelCache | None = None,
        recorder: step_capture.Recorder | None = None,
        threads: int | None = None,
        device: TrainingDevice = PROCESSOR,
    ) -> None:
        self._work, self._recorder, self._threads, self._device = work, recorder, threads, device
        self._sub_models = {
            PROCESSOR: SubModelCache(),
            device: sub_models or SubModelCache(device=device.name),
        }
        device.repeat_bits()

    def check(self, task: messages.TrainTask) -> None:
        with trainer.decline_unknown():
            build.find_factory(task.model.name, what=f"model {task.model.name!r}")
        self._work.check(task)

    def train(self, job: trainer.TrainingJob) -> trainer.Trained:
        return self._do(job, self._train)

    def outputs(self, job: trainer.TrainingJob, inputs: Inputs) -> Inputs:
        return self._do(job, lambda own: logits(own.module, inputs, batch_size=EVALUATION_BATCH))

    def score(self, job: trainer.TrainingJob) -> Groups:
        return self._do(job, lambda own: self._work.train(own).groups)

    def _do(self, job: trainer.TrainingJob, work: Callable[[ModuleJob], Result]) -> Result:
        """Do the work on the device, in ever smaller batches while memory is short, or on the processor.

        Each attempt begins with the received weights, or with the last checkpoint.
        """
        most, note = None, ""
        while self._device.is_accelerator:
            own = None
            try:
                own = self.with_module(job, most=most, note=note)
                return work(own)
            except Exception as error:
                most = own.smaller_batch if own is not None and is_shortage(error) else None
                what = "the processor trains" if most is None else f"batches of {most}"
                note = f"{self._device.name} {_explain(error)}: {what}"
            log.warning("%s", note)
            # What the attempt has left on the device went with its error.
            self._device.give_back()
            if most is None:
                break
        return work(self.with_module(job, note=note, device=PROCESSOR))

    def _train(self, own: ModuleJob) -> trainer.Trained:
        before = self._work.evaluate(own)
        result = self._work.train(own)
        own.module.zero_grad(set_to_none=True)
        after, delta = self._work.evaluate(own), surgery.trained_since(own.module, own.received["model"])
        # Other work may have made none.
        made = vars(own).get("features")
        trained = trainer.Trained.of(result, before, after, delta=delta, features=made[-1] if made else None)
        return replace(trained, metrics=trained.metrics.model_copy(update={"trained_on": own.place}))

    def with_module(
        self,
        job: trainer.TrainingJob,
        *,
        device: TrainingDevice | None = None,
        most: int | None = None,
        note: str = "",
    ) -> ModuleJob:
        """The job with the weights that it has received in its module, on the trainer's device by default."""
        device = self._device if device is None else device
        if self._threads:
            torch.set_num_threads(self._threads)
        task, received = job.task, job.received
        fixed = received.get(FIXED)
        module = self._sub_models[device].get(
            task.model, task.spec, job.channel_map, received["model"], fixed, job.still
        )
        return ModuleJob(
            **vars(job), module=module, recorder=self._recorder, device=device, most=most, note=note
        )


def _explain(error: Exception) -> str:
    """Why a device did not do its work; raises the error if no other device would do it."""
    refused = isinstance(error, errors.PeerError) and error.reason == errors.Reason.NO_MEMORY
    no_memory = refused or is_shortage(error)
    if isinstance(error, errors.EdgeError) and not no_memory:
        raise error
    return "has too little memory" if no_memory else f"failed: {' '.join(str(error).split())[:200]}"


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
    free: int | None,
    trained: tuple[str, ...] | None = None,
    adapters: strategy.Adapters | None = None,
) -> int | None:
    """Number of examples per forward pass that fits into so many free bytes; None for whole batches.

    Raises `PeerError` with `no-memory`, the needed and the free bytes if nothing fits.
    """
    if free is None or plan.local_epochs == 0 or examples == 0:
        return None
    costs = _costs.setdefault(module, {})
    key = trained, adapters
    if key not in costs:
        costs[key] = cost_model.network_cost(module, input_shape, trained, adapters)
    cost = costs[key]
    whole = min(plan.batch_size, examples)
    for size in (whole,) if _stays_whole(module, plan, trained) else trainer.equal_parts(whole):
        # The network and the examples are in memory.
        further = cost.training(plan, examples=examples, batch=size, pixel_bytes=0).total - cost.parameters
        if MARGIN * further <= free:
            return None if size == whole else size
    raise trainer.no_memory(MARGIN * further, free, size)


def _stays_whole(module: nn.Module, plan: strategy.TrainingPlan, trained: Collection[str] | None) -> bool:
    """Whether the parts of a batch would train otherwise than the whole."""
    return normalises_batches(module, trained) or any(part.name in PER_BATCH for part in plan.objectives)
