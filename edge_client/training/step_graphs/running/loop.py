"""Local training with step graphs: the loop of `edge_client.training.loop`, in numpy and onnxruntime.

The batches, their order and the objectives' random choices are those of torch's loop; numbers differ by
rounding.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.training import epochs, results
from edge_client.training.checkpoints import EpochCheckpoint, UnfitCheckpoint
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.running.arena import StepSession
from edge_client.training.step_graphs.running.objectives.objective import GraphObjective, Width
from edge_client.training.step_graphs.running.optimizers import OPTIMIZERS, LowRank
from schemas.strategy import TrainingPlan

Array = NDArray[Any]
Arrays = Mapping[str, Array]

MASKS = 3  # stream of the plan's seed from which the masks of dropout are drawn


@dataclass(frozen=True, eq=False)
class Network:
    """What is trained: all arrays of the graph by name, changed in place, and the graph with these arrays.

    `smaller` are the graphs of smaller widths with arrays of their own. A step needs `smallest_batch`
    examples. `dropouts` are the probability and the shape of each mask, without the batch axis. `share` is
    that of the full network's channels. Of weights with `adapters` a change of low rank is trained.
    """

    arrays: Arrays
    session: StepSession
    smaller: Mapping[int, tuple[StepSession, Arrays]] = field(default_factory=dict)
    smallest_batch: int = 1
    dropouts: Mapping[str, tuple[float, tuple[int, ...]]] = field(default_factory=dict)
    share: float = 1.0
    adapters: LowRank | None = None


class GradientSums:
    """Adds the gradients of a batch's parts by name; the result is valid until the next batch.

    The arrays stay between batches: the kernel would clear fresh ones, which takes as long as the sum.
    """

    def __init__(self) -> None:
        self._total: dict[str, Array] = {}

    def add(self, gradients: Arrays, weight: float, *, first: bool) -> dict[str, Array]:
        """The sum so far with `weight` times these gradients, which may be changed; `first` begins anew."""
        for name, gradient in _scale_gradients(gradients, weight).items():
            if first and name not in self._total:
                self._total[name] = gradient.copy()
            elif first:
                np.copyto(self._total[name], gradient)
            else:
                self._total[name] += gradient
        return self._total


def _scale_gradients(gradients: Arrays, factor: float) -> Arrays:
    """The gradients times a number, in place."""
    if factor != 1:
        for gradient in gradients.values():
            gradient *= np.float32(factor)
    return gradients


class Training:
    """One task's training; `run` may be called once.

    Examples are preprocessed in batches: float32 takes four times the memory of bytes.
    """

    def __init__(
        self,
        network: Network,
        examples: LabelledData,
        plan: TrainingPlan,
        objectives: Sequence[GraphObjective],
        *,
        micro_batch: int | None = None,
    ) -> None:
        self._network, self._examples, self._plan = network, examples, plan
        self._objectives, self._micro_batch = objectives, micro_batch
        self._optimizer = OPTIMIZERS[plan.optimizer](plan)
        self._sums = defaultdict[StepSession, GradientSums](GradientSums)
        self._progress = epochs.EpochProgress()
        self.radius, self._taken = 0.0, 0
        self._before: dict[str, Array] = {}

    def run(
        self,
        *,
        on_epoch: Callable[[results.EpochReport], None],
        should_stop: Callable[[], bool],
        checkpoint: EpochCheckpoint | None,
    ) -> results.TrainingResult:
        """Train for the plan's epochs, after those of the checkpoint; without epochs look at the data once.

        Raises `TrainingStopped` and `UnfitCheckpoint` as torch's loop does.
        """
        progress = self._progress
        self._resume(checkpoint)
        first, last = progress.finished_epochs, self._plan.local_epochs
        for number, order in enumerate(islice(self._orders(), first, last), first):
            if number < progress.finished_epochs:
                # A sharpness-aware epoch took the place of this one.
                continue
            self.radius = epochs.epoch_radius(self._plan, progress.finished_epochs)
            found = self._run_epoch(order, should_stop)
            progress.add(*found, epochs=epochs.WORK if self.radius else 1)
            if checkpoint is not None:
                checkpoint.save(self._state)
            on_epoch(progress.report(self._plan))
        if self._plan.local_epochs == 0 and self._network.session.observed:
            self._look(should_stop)
        metrics = progress.metrics(len(self._examples))
        groups = results.merge_groups(objective.finish() for objective in self._objectives)
        kept, adapters = results.merge_groups(o.keep() for o in self._objectives), self._network.adapters
        return results.TrainingResult(
            groups, metrics, kept, adapters.factors() if adapters is not None else {}
        )

    def _orders(self) -> Iterator[NDArray[np.int64]]:
        count = len(self._examples)
        return epochs.epoch_orders(self._plan.seed, count) if count else iter(())

    def _batches(self, order: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
        size = self._plan.batch_size
        for start in range(0, len(order), size):
            chosen = order[start : start + size]
            if len(chosen) >= self._network.smallest_batch:
                yield chosen

    def _run_epoch(
        self, order: NDArray[np.int64], should_stop: Callable[[], bool]
    ) -> tuple[float | None, int]:
        """One pass over the batches; returns the mean loss per example, if finite, and the steps' number."""
        total, count, steps = np.float32(0), 0, 0
        for objective in self._objectives:
            objective.start_epoch()
        for chosen in self._batches(order):
            if should_stop():
                raise results.TrainingStopped("local training was stopped")
            self._taken = self._progress.steps + steps
            width = self._width()
            share = self._network.share * (width.share if width else 1.0)
            self._optimizer.rate = epochs.step_rate(self._plan, self._taken, share)
            total += np.float32(self._step(chosen)) * np.float32(len(chosen))
            count += len(chosen)
            steps += 1
        return (results.bound_loss(float(total) / count) if count else None), steps

    def _step(self, chosen: NDArray[np.int64]) -> float:
        loss, gradients = self._step_passes(chosen)
        if self.radius:
            with self.uphill(gradients):
                _, gradients = self._step_passes(chosen)
        for objective in self._objectives:
            objective.correct(gradients)
        arrays, adapters = self._network.arrays, self._network.adapters
        with np.errstate(over="ignore", invalid="ignore"):
            if adapters is None:
                self._optimizer.step(arrays, gradients)
            else:
                self._optimizer.step({**arrays, **adapters.arrays}, adapters.pass_on(gradients))
                adapters.merge(arrays)
        return loss

    def _step_passes(self, chosen: NDArray[np.int64]) -> tuple[float, Arrays]:
        """Loss and gradients of the step's width on a batch."""
        width = self._width()
        return self._narrow_passes(chosen, width) if width else self._passes(chosen)

    def _width(self) -> Width | None:
        """The smaller network of the step; None for the device's own."""
        return next((found for objective in self._objectives if (found := objective.width())), None)

    @contextmanager
    def uphill(self, gradients: Arrays) -> Iterator[None]:
        """Move the weights as `edge_client.training.shared_forward.uphill` does; uses up the gradients."""
        arrays = self._network.arrays
        if not self._before:
            moved = (*gradients, *self._network.session.buffers)
            self._before = {name: np.empty_like(arrays[name]) for name in moved}
        for name, array in self._before.items():
            np.copyto(array, arrays[name])
        with np.errstate(over="ignore", invalid="ignore"):
            norm = np.sqrt(sum(np.vdot(gradient, gradient) for gradient in gradients.values()))
            factor = np.float32(self.radius / max(norm, epochs.SMALLEST_NORM))
            for name, gradient in gradients.items():
                gradient *= factor
                arrays[name] += gradient
        yield
        for name, array in self._before.items():
            np.copyto(arrays[name], array)

    def _passes(self, chosen: NDArray[np.int64]) -> tuple[float, Arrays]:
        """Loss and gradients of the network on a batch; statistics and objectives take note of it."""

        def take_note(session: StepSession, examples: int) -> None:
            for name, buffer in session.buffers.items():
                np.copyto(self._network.arrays[name], buffer)
            for objective in self._objectives:
                objective.observe(session.observed, examples)

        return self._mean_of_parts(self._network.session, chosen, take_note)

    def _mean_of_parts(
        self,
        session: StepSession,
        chosen: NDArray[np.int64],
        after_part: Callable[[StepSession, int], None] = lambda *_: None,
    ) -> tuple[float, Arrays]:
        """Loss and gradients on a batch, which are means over its parts, weighted by examples."""
        size = min(self._micro_batch or len(chosen), len(chosen))
        batch = self._batch(chosen)
        loss, total = 0.0, session.gradients
        for start in range(0, len(chosen), size):
            part = {name: array[start : start + size] for name, array in batch.items()}
            found = session.run(part)
            examples = len(chosen[start : start + size])
            after_part(session, examples)
            loss += found * examples / len(chosen)
            if size < len(chosen):
                total = self._sums[session].add(session.gradients, examples / size, first=start == 0)
        return loss, _scale_gradients(total, size / len(chosen))

    def _batch(self, chosen: NDArray[np.int64]) -> dict[str, Array]:
        """The examples at these indices and their masks, as the graph's inputs."""
        part = epochs.augmented(self._examples.subset(chosen), self._plan, self._taken)
        inputs = part.inputs()
        return {names.INPUTS: inputs, names.LABELS: part.targets(inputs), **self._masks(len(chosen))}

    def _masks(self, examples: int) -> dict[str, Array]:
        """Masks of dropout for the next batch, from the plan's seed and the number of the step."""
        if not self._network.dropouts:
            return {}
        random = np.random.default_rng((self._plan.seed, MASKS, self._taken))
        return {
            name: (random.random((examples, *shape), np.float32) >= probability).astype(np.float32)
            / np.float32(1 - probability)
            for name, (probability, shape) in self._network.dropouts.items()
        }

    def _narrow_passes(self, chosen: NDArray[np.int64], width: Width) -> tuple[float, Arrays]:
        """Loss and gradients of a smaller width; the gradients of what it lacks are 0."""
        session, arrays = self._network.smaller[width.number]
        for name, array in arrays.items():
            np.copyto(array, width.index_sets[name].take(self._network.arrays[name]))
        # The running statistics of a smaller width are not those of the device's own network.
        loss, narrow = self._mean_of_parts(session, chosen)
        gradients = self._network.session.gradients
        for name, gradient in gradients.items():
            gradient.fill(0)
            gradient[width.index_sets[name].index] = narrow[name]
        return loss, gradients

    def _look(self, should_stop: Callable[[], bool]) -> None:
        """One pass without training, for objectives that observe."""
        for objective in self._objectives:
            objective.start_epoch()
        for order in islice(self._orders(), 1):
            for chosen in self._batches(order):
                if should_stop():
                    raise results.TrainingStopped("local training was stopped")
                self._passes(chosen)

    def _state(self) -> dict[str, Any]:
        return {
            **self._progress.figures(),
            "arrays": dict(self._network.arrays),
            "optimizer": {"steps": self._optimizer.steps, "state": self._optimizer.state},
            "objectives": [objective.state() for objective in self._objectives],
            "adapters": dict(self._network.adapters.arrays) if self._network.adapters is not None else {},
        }

    def _resume(self, checkpoint: EpochCheckpoint | None) -> None:
        saved = checkpoint.load_values() if checkpoint is not None else None
        if checkpoint is None or saved is None:
            return
        try:
            for name, array in self._network.arrays.items():
                np.copyto(array, saved["arrays"][name])
            self._optimizer.steps = saved["optimizer"]["steps"]
            self._optimizer.state = {
                kind: {name: np.array(array) for name, array in arrays.items()}
                for kind, arrays in saved["optimizer"]["state"].items()
            }
            for objective, values in zip(self._objectives, saved["objectives"], strict=True):
                objective.resume(values)
            if self._network.adapters is not None:
                self._network.adapters.resume(saved["adapters"])
            self._progress.resume(saved)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            # Without the checkpoint the next attempt can start anew.
            checkpoint.drop()
            raise UnfitCheckpoint(f"the checkpoint does not fit this training: {error!r}") from error
