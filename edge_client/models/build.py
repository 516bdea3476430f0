"""From the name of a network to the network: import its factory, call it, repeatable initial weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable

import torch
from torch import nn

from edge_client.models.registry import entry
from schemas.errors import ConfigError
from schemas.values import ModelSpec


def build_model(spec: ModelSpec, *, seed: int = 0) -> nn.Module:
    """Build the network that `spec` names; equal seeds give equal weights.

    The global random state of torch is left as it was. Raises `ConfigError` for whatever goes wrong.
    """
    factory = _factory(entry(spec.name).factory)
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        module = _call(factory, spec)
    if not isinstance(module, nn.Module):
        raise ConfigError(
            f"model {spec.name!r}: the factory returned {type(module).__name__}; return a torch.nn.Module"
        )
    return module


def _factory(path: str) -> Callable[..., object]:
    module_name, _, name = path.partition(":")
    try:
        factory = getattr(importlib.import_module(module_name), name, None)
    except Exception as error:
        raise ConfigError(
            f"model {path!r}: importing {module_name!r} failed ({error}); check that it is installed "
            "or that its folder is in PYTHONPATH"
        ) from error
    if not callable(factory):
        raise ConfigError(f"model {path!r}: {module_name!r} has no function {name!r}; define it there")
    return factory  # type: ignore[no-any-return]


def _call(factory: Callable[..., object], spec: ModelSpec) -> object:
    try:
        return factory(spec.input_shape, spec.num_classes)
    except ImportError as error:
        raise ConfigError(
            f"model {spec.name!r} needs {error.name or error}: pip install 'edge-federation[client]'"
        ) from error
    except Exception as error:
        raise ConfigError(
            f"model {spec.name!r} for input {spec.input_shape} and {spec.num_classes} classes: {error}; "
            "the factory is called as factory(input_shape, num_classes)"
        ) from error
