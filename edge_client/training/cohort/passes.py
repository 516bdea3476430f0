"""Forward and backward passes of several devices at once, by `torch.func.vmap` over their stacked tensors.

In dropout each device draws from its own generator what it draws alone.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edge_client.training.evaluation import Loss
from edge_client.training.objectives import base


@dataclass(frozen=True, eq=False)
class Draws:
    """The generators of N devices, and the examples in the batch of each."""

    generators: Sequence[torch.Generator]
    sizes: Sequence[int]


class DropoutOfEach(TorchFunctionMode):
    """Inside `torch.func.vmap` over N devices, dropout takes the draws of each."""

    def __init__(self, draws: Draws) -> None:
        super().__init__()
        self._draws = draws

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is functional.dropout:
            return self._drop(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))

    def _drop(self, x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        if not training or p == 0:
            return x
        noise: Tensor = _Kept.apply(x, 1 - p, self._draws)  # type: ignore[no-untyped-call]
        return x.mul_(noise) if inplace else x * noise


class _Kept(torch.autograd.Function):
    """The factor of each number: 0 where it is dropped, else one over the share that is kept."""

    @staticmethod
    def forward(x: Tensor, kept: float, draws: Draws) -> Tensor:
        raise RuntimeError("dropout of what is the same for all devices")

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.mark_non_differentiable(output)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[None, None, None]:
        return None, None, None

    @staticmethod
    def vmap(
        info: Any, dims: tuple[int | None, ...], x: Tensor, kept: float, draws: Draws
    ) -> tuple[Tensor, int]:
        """The factors [N, B, ...] for x [N, B, ...]."""
        assert dims[0] is not None
        factors = torch.ones_like(x.movedim(dims[0], 0), memory_format=torch.contiguous_format)
        for own, generator, size in zip(factors, draws.generators, draws.sizes, strict=True):
            own[:size].bernoulli_(kept, generator=generator)
        return factors.div_(kept), 0


EXTRA = "+"  # begins the names of what objectives train besides the network


@dataclass(frozen=True, eq=False)
class Rows:
    """What N devices compute with: tensors by name and examples, all [N, ...].

    `own` are those of each objective. `shares` [N, B] are the examples' shares in the mean of their batch, 0
    for rows that only fill a batch up; None if all batches are full. `draws` are for what is random.
    """

    trained: base.Tensors
    fixed: base.Tensors
    own: Sequence[base.Tensors]
    inputs: Tensor
    labels: Tensor
    shares: Tensor | None
    draws: Draws


class Passes:
    """The passes of one network under the objectives' `parts`, as its first device has set them up.

    `names` are the stack's names of the network's tensors. The network must not be used otherwise, since a
    layer with two names keeps the tensors of a call.
    """

    def __init__(
        self, network: nn.Module, names: Mapping[str, str], parts: Sequence[base.StepPart], loss: Loss
    ) -> None:
        self._runner = _Runner(network, [part.extra or nn.Module() for part in parts])
        self._names = {f"network.{name}": given for name, given in names.items()}
        self._names |= {
            f"extra.{place}.{name}": f"{EXTRA}{place}.{name}"
            for place, part in enumerate(parts)
            for name, _ in (part.extra or nn.Module()).named_parameters()
        }
        self._parts, self._loss = parts, loss

    def gradients(
        self, rows: Rows, network: base.StepNetwork | None
    ) -> tuple[base.Tensors, Tensor, base.Tensors]:
        """Gradients of the trained tensors, plain losses [N], and the sums [N, ...] of observed values.

        Buffers of the rows change as in a step.
        """
        take = vmap(grad(partial(self._total, network), has_aux=True), in_dims=_dims(rows))
        with DropoutOfEach(rows.draws):
            gradients, (losses, sums) = take(*_arguments_of(rows))
        return gradients, losses, sums

    def look(self, rows: Rows) -> base.Tensors:
        """The sums of observed values in evaluation mode."""
        with torch.no_grad():
            _, (_, sums) = vmap(partial(self._total, None), in_dims=_dims(rows))(*_arguments_of(rows))
        return sums

    def train(self, mode: Callable[[nn.Module], object]) -> None:
        """Set the network's mode."""
        mode(self._runner.network)

    def _total(
        self,
        network: base.StepNetwork | None,
        trained: base.Tensors,
        fixed: base.Tensors,
        own: Sequence[base.Tensors],
        inputs: Tensor,
        labels: Tensor,
        shares: Tensor | None,
    ) -> tuple[Tensor, tuple[Tensor, base.Tensors]]:
        """The loss after all objectives of one device, its plain loss, and the sums of observed values."""
        tensors = {**trained, **fixed}
        if network is None:
            given = {name: tensors[stacked] for name, stacked in self._names.items()}
            outputs = functional_call(self._runner, given, (inputs,))
        else:
            outputs = network.outputs(tensors, inputs)
        values = [part.values() for part in self._parts if part.values is not None]
        sums = {name: _sum(value.double(), shares) for each in values for name, value in each.items()}
        mean = partial(_mean, labels=labels, shares=shares)
        plain = total = mean(self._loss, outputs)
        batch = base.BatchLoss(outputs, mean)
        for part, tensors_of in zip(self._parts, own, strict=True):
            total = part.loss(trained, tensors_of, batch, total)
        return total, (plain, sums)


class _Runner(nn.Module):
    """A network, with the modules that its hooks call."""

    def __init__(self, network: nn.Module, extra: Sequence[nn.Module]) -> None:
        super().__init__()
        self.network, self.extra = network, nn.ModuleList(extra)

    def forward(self, inputs: Tensor) -> Any:
        return self.network(inputs)


def _arguments_of(rows: Rows) -> tuple[Any, ...]:
    return rows.trained, rows.fixed, list(rows.own), rows.inputs, rows.labels, rows.shares


def _dims(rows: Rows) -> tuple[int | None, ...]:
    return 0, 0, 0 if any(rows.own) else None, 0, 0, None if rows.shares is None else 0


def _sum(values: Tensor, shares: Tensor | None) -> Tensor:
    """The sum over a batch's own examples of values [B, ...]."""
    if shares is None:
        return values.sum(0)
    total: Tensor = torch.tensordot((shares > 0).to(values.dtype), values, dims=1)
    return total


def _mean(loss: Loss, outputs: Tensor, *, labels: Tensor, shares: Tensor | None) -> Tensor:
    """The mean loss of outputs [B, ...] over a batch's own examples."""
    if shares is None:
        return loss(outputs, labels)
    each = vmap(lambda output, label: loss(output.unsqueeze(0), label.unsqueeze(0)))(outputs, labels)
    mean: Tensor = each.dot(shares)
    return mean
