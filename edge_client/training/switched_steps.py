"""Recorded steps of a training in which an objective chooses each step's network."""

from collections.abc import Hashable
from functools import partial

from torch import Tensor, nn

from edge_client.training import evaluation, shared_forward, step_capture
from edge_client.training.objectives.base import LocalObjective, StepNetwork
from edge_client.training.optimizers import Optimizer


class SwitchedSteps:
    """One step per call, on the network that `objective` chooses; one recording per network.

    The bits are those of plain steps with the objective.
    """

    def __init__(
        self,
        recorder: step_capture.Recorder,
        module: nn.Module,
        optimizer: Optimizer,
        objective: LocalObjective,
        loss: evaluation.Loss,
        *,
        radius: float = 0.0,
    ) -> None:
        self._recorder, self._module, self._loss, self._radius = recorder, module, loss, radius
        self._optimizer, self._objective = optimizer, objective
        self._steps: dict[Hashable, step_capture.Step] = {}

    def __call__(self, examples: step_capture.Examples) -> Tensor:
        """Run the step, and let the objective choose the next network."""
        network = self._objective.choose_network()
        key = None if network is None else network.key
        step = self._steps.get(key)
        if step is None:
            given = (self._module, self._optimizer)
            plain = partial(plain_step, *given, network, self._loss, radius=self._radius)
            step = self._recorder.steps(*given, plain, self._loss, network, radius=self._radius)
            self._steps[key] = step
        loss = step(examples)
        self._objective.correct()
        return loss


def plain_step(
    module: nn.Module,
    optimizer: Optimizer,
    network: StepNetwork | None,
    loss: evaluation.Loss,
    examples: step_capture.Examples,
    *,
    radius: float = 0.0,
) -> Tensor:
    """One step on the module, or on another network over its tensors; returns the loss."""

    def passes() -> Tensor:
        if network is None:
            outputs = module(examples.inputs)
        else:
            tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            outputs = network.outputs(tensors, examples.inputs)
        mean = loss(outputs, examples.labels)
        mean.backward()  # type: ignore[no-untyped-call]
        return mean.detach()

    found = shared_forward.step_gradients(module, optimizer, passes, radius=radius)
    optimizer.step()
    return found
