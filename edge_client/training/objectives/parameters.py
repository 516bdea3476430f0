"""Arguments of objectives: numbers, trained parameters, and the arrays that groups hold under their names."""

import math

import numpy as np

from edge_client.system.lazy_torch import Tensor, nn, torch
from schemas.errors import ConfigError, InvariantError
from schemas.tensors.arrays import Array, Arrays


def checked_factor(objective: str, option: str, value: float) -> float:
    """An option that is a finite number of at least 0; `ConfigError` otherwise."""
    if not (isinstance(value, int | float) and 0 <= value < math.inf):
        raise ConfigError(f"objective '{objective}': {option} must be a number of at least 0, got {value!r}")
    return value


def trained_parameters(module: "nn.Module") -> dict[str, "nn.Parameter"]:
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


def tensor_for(arrays: Arrays, name: str, weight: "Tensor") -> "Tensor":
    """A group's array for a parameter, on its device, or zeros; raises `InvariantError` for another shape."""
    if name not in arrays:
        return torch.zeros_like(weight, requires_grad=False)
    array = arrays[name]
    if array.shape != tuple(weight.shape):
        raise InvariantError(f"{name!r}: expected shape {tuple(weight.shape)}, got {array.shape}")
    return torch.from_numpy(np.array(array)).to(weight.device, weight.dtype)


def array_of(tensor: "Tensor") -> Array:
    """A copy as a float32 array."""
    return np.array(tensor.detach().to("cpu", torch.float32).numpy())
