"""The state of a training between two epochs as plain values, including torch's random generators.

It is in the processor's memory, so that a training goes on where another device has begun it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.models.attributes import PROCESSOR, device_state, set_device_state
from edge_client.models.modes import device_of
from edge_client.training.checkpoints import UnfitCheckpoint
from edge_client.training.objectives.base import LocalObjective
from edge_client.training.optimizers import Optimizer


def state_of(
    module: nn.Module, optimizer: Optimizer, objectives: Sequence[LocalObjective], **figures: Any
) -> dict[str, Any]:
    """The state after the epochs so far, with `figures`; arrays share the memory of tensors on the CPU.

    Parameters without gradients are left out: they are as they were received.
    """
    return {
        **figures,
        "module": plain(_tensors(module)),
        "optimizer": plain(optimizer.state),
        "objectives": [plain(objective.state()) for objective in objectives],
        "random": plain(_random_states(module)),
    }


def restore(
    state: Mapping[str, Any], module: nn.Module, optimizer: Optimizer, objectives: Sequence[LocalObjective]
) -> None:
    """Restore a state into objects set up for the same task; raises `UnfitCheckpoint` for another state."""
    try:
        _fill(_tensors(module), state["module"])
        optimizer.state = {
            index: {name: _laid_like(optimizer.parameters[index], value) for name, value in values.items()}
            for index, values in state["optimizer"].items()
        }
        device = device_of(module)
        for objective, values in zip(objectives, state["objectives"], strict=True):
            objective.resume(tensors(values, device))
        # A training that goes on elsewhere draws what that device's generator makes of the seed.
        for each in {PROCESSOR, device}:
            if each.type in state["random"]:
                set_device_state(each, tensors(state["random"][each.type]))
    except (LookupError, ValueError, TypeError, RuntimeError, AttributeError) as error:
        raise UnfitCheckpoint(f"the checkpoint does not fit this training: {error!r}") from error


def plain(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().cpu().numpy()
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return value


def tensors(value: Any, device: torch.device = PROCESSOR) -> Any:
    if isinstance(value, np.ndarray):
        return torch.from_numpy(np.array(value)).to(device)
    if isinstance(value, Mapping):
        return {key: tensors(item, device) for key, item in value.items()}
    return value


def _laid_like(parameter: Tensor, value: Any) -> Any:
    """An optimizer's value as a tensor, in the parameter's layout if it has its shape (for fused steps)."""
    tensor = tensors(value, parameter.device)
    if isinstance(tensor, Tensor) and tensor.shape == parameter.shape:
        return torch.empty_like(parameter, requires_grad=False).copy_(tensor)
    return tensor


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    """Trained parameters, and buffers, including those outside the state dict."""
    trained = {name: weight for name, weight in module.named_parameters() if weight.requires_grad}
    return {**trained, **dict(module.named_buffers())}


def _fill(mine: Mapping[str, Tensor], saved: Mapping[str, Any]) -> None:
    shapes = {name: tuple(tensor.shape) for name, tensor in mine.items()}
    if shapes != {name: array.shape for name, array in saved.items()}:
        raise ValueError("the network has other tensors")
    with torch.no_grad():
        for name, tensor in mine.items():
            tensor.copy_(tensors(saved[name]))


def _random_states(module: nn.Module) -> dict[str, Tensor]:
    return {each.type: device_state(each) for each in (PROCESSOR, device_of(module))}
