"""FedMix (Yoon et al. 2021, Approximation of Mixup under Mean Augmented Federated Learning)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext, array_of
from schemas.errors import ConfigError
from schemas.tensors.arrays import Array, Groups

MAX_MEANS = 64
_POOL, _PARTS = 1, 2  # streams of the plan's seed, separate from the one that shuffles examples


@dataclass(frozen=True, eq=False)
class _Pool:
    """Averaged examples of all devices: preprocessed images [M, C, H, W], labels [M, classes]."""

    images: "Tensor"
    labels: "Tensor"


class Mix(LocalObjective):
    """Mix every batch with one averaged example (x', y') of the pool, by mixup's first-order expansion.

    (1 - l) CE(f(z), y) + l CE(f(z), y') + l <dCE(f(z), y)/dz, x'> at z = (1 - l) x (eq. 4), where l is
    `mixing`; with l = 0 or without a pool this is exactly plain SGD. Other objectives' terms are not scaled.
    The derivative term is trained too, so a step takes about twice the time.

    The group `mean-data` receives the pool, and sends this device's `means` averages until the server has
    counted them once. The plan's seed decides which examples are averaged together. Every average has at
    least two examples, so that a device with few examples sends fewer averages.
    """

    receives = frozenset({"mean-data"})
    sends = frozenset({"mean-data"})
    labels = frozenset({"classes"})

    def __init__(self, *, mixing: float = 0.1, means: int = 1) -> None:
        if not (isinstance(mixing, int | float) and 0 <= mixing < 1):
            raise ConfigError(f"objective 'mix': mixing must be at least 0 and below 1, got {mixing!r}")
        if not (isinstance(means, int) and 1 <= means <= MAX_MEANS):
            raise ConfigError(f"objective 'mix': means must be a number of 1 to {MAX_MEANS}, got {means!r}")
        self._mixing, self._means = mixing, means
        self._context: TrainingContext | None = None
        self._pool: _Pool | None = None
        self._classes, self._sent = 0, False

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        self._context, self._sent = context, "mean-data" in context.kept
        self._random = np.random.default_rng([context.plan.seed, _POOL])
        received = context.received.get("mean-data")
        if received and self._mixing > 0:
            arrays = (torch.from_numpy(np.array(received[name])) for name in ("images", "labels"))
            self._pool = _Pool(*(array.to(context.inputs.device, context.inputs.dtype) for array in arrays))
        return ()

    def prepare(self, inputs: "Tensor") -> "Tensor":
        # Without gradients nothing is trained, so the inputs stay unmixed.
        if self._pool is None or not torch.is_grad_enabled():
            return inputs
        return ((1 - self._mixing) * inputs).requires_grad_()

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        self._classes = batch.outputs.shape[1]
        if self._pool is None or not torch.is_grad_enabled():
            return base
        chosen = int(self._random.integers(len(self._pool.images)))
        image, label = self._pool.images[chosen], self._pool.labels[chosen]
        own = torch.nn.functional.cross_entropy(batch.outputs, batch.labels)
        other = torch.nn.functional.cross_entropy(batch.outputs, label.expand_as(batch.outputs))
        (slope,) = torch.autograd.grad(own, batch.inputs, create_graph=True)
        return base + self._mixing * (other - own + (slope * image).sum())

    def finish(self) -> Groups:
        context = self._context
        if context is None or self._sent or self._classes == 0:
            return {}
        parts = _parts(len(context.labels), self._means, seed=context.plan.seed)
        if not parts:
            return {}
        self._sent = True
        labels = torch.nn.functional.one_hot(context.labels, self._classes).to(context.inputs.dtype)
        return {"mean-data": {"images": _means(context.inputs, parts), "labels": _means(labels, parts)}}

    def keep(self) -> Groups:
        """Note that the averages were sent; it is kept once the server has counted the round."""
        return {"mean-data": {"sent": np.ones(1, np.float32)}} if self._sent else {}

    def state(self) -> Mapping[str, Any]:
        return {"random": self._random.bit_generator.state, "classes": self._classes}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._random.bit_generator.state = state["random"]
        self._classes = state["classes"]

    def close(self) -> None:
        self._context = self._pool = None


def _parts(count: int, means: int, *, seed: int) -> list["Tensor"]:
    """Random parts of 0 to `count` - 1, at most `means`, each of two or more, with sizes equal up to one."""
    number = min(means, count // 2)
    order = np.random.default_rng([seed, _PARTS]).permutation(count)
    return [torch.from_numpy(part) for part in np.array_split(order, number)] if number else []


def _means(values: "Tensor", parts: list["Tensor"]) -> Array:
    return array_of(torch.stack([values[part.to(values.device)].mean(0) for part in parts]))
