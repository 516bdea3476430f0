"""Builds networks by name, with repeatable initial weights."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from edge_client.models.registry import MODELS, entry
from edge_client.system.schemas_package import hidden_by_ours
from edge_client.system.user_code import FAILS, users_function
from schemas.errors import ConfigError
from schemas.values import ModelSpec


def build_model(spec: ModelSpec, *, seed: int = 0) -> nn.Module:
    """Build the network `spec`; equal seeds give equal weights, and torch's random state does not change.

    Raises `ConfigError` for any failure of the factory.
    """
    factory = users_function(entry(spec.name).factory, what=f"model {spec.name!r}")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = _call(factory, spec)
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model {spec.name!r}: the factory returned {type(module).__name__}; return a torch.nn.Module"
        )
    return module


def build_blank(spec: ModelSpec) -> nn.Module:
    """As `build_model`, without drawing initial weights, which takes longest; the caller fills them in."""
    with _Undrawn():
        return build_model(spec)


class _Undrawn(TorchFunctionMode):
    """Leaves parameters uninitialised, and only parameters."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        filled = args[0] if args else given.get("tensor")
        if isinstance(filled, nn.Parameter) and func in _DRAWING:
            return filled
        return func(*args, **given)


_DRAWING = frozenset(
    {
        Tensor.uniform_,
        Tensor.normal_,
        nn.init.uniform_,
        nn.init.normal_,
        nn.init.kaiming_uniform_,
        nn.init.kaiming_normal_,
    }
)
"""The functions that initialise a tensor, as far as torch lets them be intercepted."""


def _call(factory: Callable[..., object], spec: ModelSpec) -> object:
    try:
        return factory(spec.input_shape, spec.num_classes)
    except FAILS as error:
        if isinstance(error, ImportError) and spec.name in MODELS:
            raise ConfigError(
                f"model {spec.name!r} needs {error.name or error}: pip install 'edge-federation[client]'"
            ) from error
        raise ConfigError(
            f"model {spec.name!r} for input {spec.input_shape} and {spec.num_classes} classes: {error}; "
            f"the factory is called as factory(input_shape, num_classes){hidden_by_ours(error)}"
        ) from error
