"""The epochs of a training, with torch and without: progress, order of examples, rate, sharp steps."""

import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.training.results import EpochReport
from schemas import errors, strategy
from schemas.values import TrainingMetrics

# The local optimizers by name, for programs without torch, which `optimizers` needs.

OPTIMIZER_NAMES = ("sgd", "adam", "adamw")


def check_optimizer(name: str) -> None:
    """Raise `ConfigError` with the nearest match for an unknown optimizer."""
    if name not in OPTIMIZER_NAMES:
        raise errors.ConfigError(f"unknown optimizer '{name}'{errors.nearest(name, OPTIMIZER_NAMES)}")


def kept_bytes(plan: strategy.TrainingSettings, weights: int, *, adapted: int = 0, factors: int = 0) -> int:
    """Bytes kept beside `weights` bytes that are trained: the optimizer's state, and weights of sharp steps.

    The optimizer has the `factors` of `adapted` weights; a sharpness-aware step moves the weights themselves.
    """
    sharp = plan.sam_radius > 0
    return (kept_per_number(plan) - sharp) * (weights - adapted + factors) + sharp * weights


def kept_per_number(plan: strategy.TrainingSettings) -> int:
    """Numbers kept per trained number: the optimizer's state, and the weights of a sharpness-aware step."""
    states = int(plan.momentum > 0) if plan.optimizer == "sgd" else 2
    return states + (plan.sam_radius > 0)


class EpochProgress:
    """The loss of each epoch, the number of steps, and the seconds since the training began."""

    def __init__(self) -> None:
        self.losses: list[float | None] = []
        self.steps = 0
        self._began = time.perf_counter()

    @property
    def finished_epochs(self) -> int:
        """Number of finished epochs."""
        return len(self.losses)

    def figures(self) -> dict[str, Any]:
        return {"losses": self.losses, "steps": self.steps, "seconds": time.perf_counter() - self._began}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Add the epochs of a checkpoint; raises `LookupError` or `TypeError` for anything else."""
        losses, steps, began = list(saved["losses"]), saved["steps"], self._began - saved["seconds"]
        self.losses, self.steps, self._began = losses, steps, began

    def add(self, loss: float | None, steps: int, *, epochs: int) -> None:
        """Count what took the work of so many epochs with this loss, and of so many steps in each."""
        self.losses.extend([loss] * epochs)
        self.steps += steps * epochs

    def report(self, plan: strategy.TrainingPlan) -> EpochReport:
        """The last pass over the data, of those of the plan."""
        return EpochReport(
            passes(plan, self.finished_epochs), passes(plan, plan.local_epochs), self.losses[-1]
        )

    def metrics(self, examples: int) -> TrainingMetrics:
        return TrainingMetrics(
            examples=examples,
            epochs=self.finished_epochs,
            steps=self.steps,
            train_loss=self.losses[-1] if self.losses else None,
            seconds=time.perf_counter() - self._began,
        )


def count_steps(plan: strategy.TrainingPlan, examples: int, *, smallest: int) -> int:
    """Optimizer steps of the plan, of which each has at least `smallest` examples."""
    full, rest = divmod(examples, plan.batch_size)
    return plan.local_epochs * (full + (rest >= smallest))


def epoch_orders(seed: int, count: int) -> Iterator[NDArray[np.int64]]:
    """Endless random orders of `count` examples, those of `torch.randperm` with a generator of that seed.

    torch draws 32 bits of a Mersenne Twister per position (Matsumoto and Nishimura 1998) and swaps
    (Durstenfeld 1964).
    """
    bits = np.random.MT19937()
    bits._legacy_seeding(seed & 0xFFFFFFFF)
    while True:
        order = list(range(count))
        if count > 1:
            offsets = bits.random_raw(count - 1) % np.arange(count, 1, -1, dtype=np.uint64)
            for place, offset in enumerate(offsets.tolist()):
                order[place], order[place + offset] = order[place + offset], order[place]
        yield np.array(order, np.int64)


def augmented(examples: LabelledData, plan: strategy.TrainingPlan, step: int) -> LabelledData:
    """The examples of a step, counted from 0 in the round, with the plan's random changes."""
    if not plan.augment:
        return examples
    # Imported here: most devices augment nothing.
    from edge_client.data.pictures.augmentations import augment

    return augment(examples, plan.augment, plan.seed, step)


MAX_RATE_BY_WIDTH = 0.003  # above it a higher rate costs small sub-models of `cnn` 3 points of accuracy


def step_rate(plan: strategy.TrainingPlan, taken: int, share: float = 1.0) -> float:
    """The learning rate after `taken` steps of the round: it rises linearly over the plan's `warm_up_steps`.

    Each round starts an optimizer anew. Adam's first steps are of full size in every weight, however small
    its gradient is (Ma and Yarats 2021), which kills channels of a network without normalisation.

    With `rate_by_width` a step of Adam on a `share` of the network's channels has the rate over that share,
    up to `MAX_RATE_BY_WIDTH`: a hidden layer's rate goes with one over its width (Yang and Hu 2022, Tensor
    Programs V, table 8).
    """
    rate = plan.learning_rate
    if plan.rate_by_width and plan.optimizer != "sgd":
        rate = max(rate, min(rate / share, MAX_RATE_BY_WIDTH))
    return rate * min(1.0, (taken + 1) / (plan.warm_up_steps + 1))


WORK = 2  # epochs that a sharpness-aware one counts as: each of its steps runs both passes twice
SMALLEST_NORM = 1e-12  # gradients of a smaller norm move the weights by less than the radius


def epoch_radius(plan: strategy.TrainingPlan, done: int) -> float:
    """The radius of the next epoch: the plan's `sam_radius`, or 0 for plain steps.

    `done` epochs of the plan's are over, of which a sharpness-aware one is two. The first epochs of a round
    are sharpness-aware, and its last one is plain.
    """
    return plan.sam_radius if plan.local_epochs - done > WORK else 0.0


def passes(plan: strategy.TrainingPlan, epochs: int) -> int:
    """Passes over the data in the plan's first `epochs`, where a sharpness-aware pass counts as two."""
    sharp = max(0, plan.local_epochs - 1) // WORK if plan.sam_radius else 0
    return epochs - min(epochs // WORK, sharp)
