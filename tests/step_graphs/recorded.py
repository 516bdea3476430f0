"""Torch's own loop, recorded: what every step begins from, and what it makes of it."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edge_client.pruning import attention
from edge_client.pruning.attention import AttentionModule
from edge_client.pruning.surgery import arrays_of
from edge_client.training import loop
from edge_client.training.objectives.attentive import Attentive
from edge_client.training.objectives.base import LocalObjective
from edge_client.training.optimizers import Optimizer
from edge_client.training.step_capture import Examples
from edge_client.training.step_graphs import names
from tests.step_graphs.cases import BATCH, EXAMPLES, Case, Network, examples, objectives, plan, received

Arrays = Mapping[str, NDArray[Any]]
NUMBERS = ("eps", "momentum")  # attributes of normalisations that a graph has as constants
IN_DOUBLE = -(-EXAMPLES // BATCH)
"""Number of steps in double precision: an epoch, whose last batch is a short one."""
KINDS = {"momentum_buffer": "momentum", "exp_avg": "mean", "exp_avg_sq": "square"}
"""The names that the optimizers without torch have for torch's state."""


@dataclass(frozen=True, eq=False)
class State:
    """All parameters and buffers, and the optimizer's arrays by kind."""

    arrays: Arrays
    optimizer: Mapping[str, Arrays]


@dataclass(frozen=True, eq=False)
class Exact:
    """A step whose passes are in double precision: the gradients that the optimizer takes, and the buffers.

    `after` are all arrays after it; the optimizer's step is in float32.
    """

    gradients: Arrays
    buffers: Arrays
    after: Arrays


@dataclass(frozen=True, eq=False)
class Step:
    """A step by its `number` from 1, on so many examples, with the gradients that the optimizer takes."""

    number: int
    examples: int
    before: State
    after: State
    gradients: Arrays
    exact: Exact | None


def recorded(case: Case, found: Network) -> list[Step]:
    """The steps of the case's training by `edge_client.training.loop`."""
    module = found.module()
    given, kept = received(case, found)
    steps: list[Step] = []
    named = [*dict(module.named_parameters()), *_attention(case)]
    take = loop.Training.take_step

    def record(training: Any, radius: float, batch: Examples) -> Tensor:
        return _record(named, steps, take, training, radius, batch)

    with patch.object(loop.Training, "take_step", record):
        loop.train(
            module,
            examples(found.model.input_shape),
            plan(case),
            received=given,
            kept=kept,
            spec=found.spec,
            channel_map=found.channels,
        )
    return steps


def _attention(case: Case) -> list[str]:
    """The graph's names of the attention modules' parameters, in the order of the optimizer's."""
    layers = [layer for objective in objectives(case) for layer in objective.options.get("layers", ())]
    own = [name for name, _ in AttentionModule(1).named_parameters()]
    return [f"{names.ATTENTION}{layer}.{name}" for layer in layers for name in own]


def _record(
    named: Sequence[str], steps: list[Step], take: Any, training: Any, radius: float, batch: Examples
) -> Tensor:
    """Take a step as the loop does, and append it to `steps`."""
    module, optimizer, objectives = training.module, training.optimizer, training.objectives
    before = steps[-1].after if steps else _state(named, module, optimizer)
    exact = None
    if len(steps) < IN_DOUBLE:
        with _in_double([module, *_attached(objectives)], optimizer):
            exactly = Examples(batch.inputs.double(), batch.labels)
            training.optimizer = _NoStep(optimizer)
            take(training, radius, exactly)
            training.optimizer = optimizer
            gradients, buffers = _gradients(named, optimizer), _buffers(module)
        parameters = _moved(named, optimizer, gradients)
        exact = Exact(gradients, buffers, {**before.arrays, **buffers, **parameters})
    loss: Tensor = take(training, radius, batch)
    after = _state(named, module, optimizer)
    gradients, number = _gradients(named, optimizer), len(steps) + 1
    steps.append(Step(number, len(batch.labels), before, after, gradients, exact))
    return loss


def _moved(named: Sequence[str], optimizer: Optimizer, gradients: Arrays) -> Arrays:
    """The parameters after a step of a copy of the optimizer with these gradients."""
    own = copy.deepcopy(optimizer)
    for name, parameter in zip(named, own.parameters, strict=True):
        if name in gradients:
            parameter.grad = torch.empty_like(parameter).copy_(torch.from_numpy(gradients[name]))
    own.step()
    return {name: _copied(parameter) for name, parameter in zip(named, own.parameters, strict=True)}


class _NoStep(Optimizer):
    """Leaves the parameters and their gradients as they are."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.parameters, self.state = optimizer.parameters, {}


def _attached(objectives: Sequence[LocalObjective]) -> list[nn.Module]:
    """The attention modules, which are no part of the network."""
    held = [objective.attached for objective in objectives if isinstance(objective, Attentive)]
    return [attached.modules for attached in held if attached is not None]


@contextlib.contextmanager
def _in_double(networks: Sequence[nn.Module], optimizer: Optimizer) -> Iterator[None]:
    """Parameters and buffers in double precision inside; the former ones afterwards.

    Numbers of normalisations, such as 1e-5, are the float32 numbers of a graph: where a variance is near 0,
    their rounding changes gradients as much as a formula would.
    """
    exact = [
        (layer, name, getattr(layer, name))
        for network in networks
        for layer in network.modules()
        for name in NUMBERS
        if getattr(layer, name, None) is not None
    ]
    buffers = [buffer for network in networks for buffer in network.buffers()]
    tensors = {id(tensor): tensor for tensor in (*optimizer.parameters, *buffers)}.values()
    former = [tensor.data for tensor in tensors]
    optimizer.zero_grad()
    try:
        for tensor in tensors:
            tensor.data = tensor.data.double() if tensor.is_floating_point() else tensor.data.clone()
        for layer, name, number in exact:
            setattr(layer, name, float(np.float32(number)))
        with patch.object(attention, "EPSILON", float(np.float32(attention.EPSILON))):
            yield
    finally:
        for layer, name, number in exact:
            setattr(layer, name, number)
        optimizer.zero_grad()
        for tensor, data in zip(tensors, former, strict=True):
            tensor.data = data


def _state(named: Sequence[str], module: nn.Module, optimizer: Optimizer) -> State:
    parameters = {n: _copied(p) for n, p in zip(named, optimizer.parameters, strict=True)}
    kinds: dict[str, dict[str, NDArray[Any]]] = {}
    for place, values in optimizer.state.items():
        for kind in values.keys() & KINDS.keys():
            kinds.setdefault(KINDS[kind], {})[named[place]] = _copied(values[kind])
    return State({**arrays_of(module), **parameters}, kinds)


def _buffers(module: nn.Module) -> Arrays:
    return {name: _copied(buffer) for name, buffer in module.named_buffers() if buffer.is_floating_point()}


def _gradients(named: Sequence[str], optimizer: Optimizer) -> Arrays:
    return {
        name: _copied(parameter.grad)
        for name, parameter in zip(named, optimizer.parameters, strict=True)
        if parameter.grad is not None
    }


def _copied(tensor: Tensor) -> NDArray[Any]:
    """A contiguous copy in float32, whatever the tensor's layout is."""
    return np.array(tensor.detach().numpy(), np.float32, order="C")
