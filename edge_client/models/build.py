"""Builds networks by name, with repeatable initial weights, and finds their headers."""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode

from edge_client.models import attributes, modes, registry, zoo
from edge_client.system.user_code import FAILS, hidden_by_ours, users_function
from schemas.errors import ConfigError
from schemas.values import ModelSpec


def build_model(spec: ModelSpec, *, seed: int = 0) -> nn.Module:
    """Build the network `spec`; equal seeds give equal weights, and no random state changes.

    Lazy layers get their shapes from one forward pass. Raises `ConfigError` for any failure of the factory.
    """
    factory = find_factory(spec.name, what=f"model {spec.name!r}")
    with attributes.seed_generators(seed):
        module = _call(factory, spec)
        if not isinstance(module, nn.Module):
            raise ConfigError(
                f"model {spec.name!r}: the factory returned {type(module).__name__}; return a torch.nn.Module"
            )
        if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
            _give_shapes(module, spec)
    _check_hooks(module, spec)
    return module


def find_factory(name: str, *, what: str) -> Callable[..., object]:
    """The factory of a network, imported; `ConfigError`, which starts with `what`, if there is none."""
    reference = registry.entry(name).factory
    if registry.is_detector(name):
        return partial(_build_detector, find_factory(registry.trunk_of(name), what=what))
    return (
        zoo.find_factory(reference, what=what)
        if registry.is_library_network(reference)
        else users_function(reference, what=what)
    )


def _build_detector(trunk: Callable[..., Any], input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    from edge_client.models.detector import Detector

    return Detector(trunk(input_shape, num_classes), input_shape, num_classes)


def build_blank(spec: ModelSpec, *, seed: int = 0) -> nn.Module:
    """As `build_model`, without drawing initial weights, which takes longest; the caller fills them in."""
    with _Undrawn():
        return build_model(spec, seed=seed)


def _give_shapes(module: nn.Module, spec: ModelSpec) -> None:
    """Run two examples through a network with lazy layers, which become ordinary ones."""
    try:
        with modes.evaluating(module), torch.no_grad():
            module(torch.zeros(2, *spec.input_shape))
    except Exception as error:
        raise ConfigError(
            f"model {spec.name!r}: its lazy layers get no shape from inputs {spec.input_shape}: {error}"
        ) from error
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise ConfigError(f"model {spec.name!r} has a lazy layer that its forward method does not use")


def _check_hooks(module: nn.Module, spec: ModelSpec) -> None:
    """Refuse weights that a hook of torch's older kind computes: such a network cannot be copied."""
    for name, part in module.named_modules():
        for hook in part._forward_pre_hooks.values():
            kind = type(hook)
            if kind.__name__ in _PARAMETRIZED and kind.__module__.startswith("torch.nn.utils."):
                old = _PARAMETRIZED[kind.__name__]
                raise ConfigError(
                    f"model {spec.name!r}: torch.nn.utils.{old} of layer {name or 'itself'!r} recomputes its "
                    f"weight in a hook, and such a layer can be neither copied nor cut: use "
                    f"torch.nn.utils.parametrizations.{old}"
                )


_PARAMETRIZED = {"WeightNorm": "weight_norm", "SpectralNorm": "spectral_norm"}
"""Classes of torch's older hooks, and the functions that replace them."""


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


# The functions that initialise a tensor, as far as torch lets them be intercepted.
_DRAWING: set[Any] = {Tensor.uniform_, Tensor.normal_, nn.init.uniform_, nn.init.normal_}
_DRAWING |= {nn.init.kaiming_uniform_, nn.init.kaiming_normal_}


def _call(factory: Callable[..., object], spec: ModelSpec) -> object:
    try:
        return factory(spec.input_shape, spec.num_classes)
    except FAILS as error:
        if isinstance(error, ImportError) and spec.name in registry.MODELS:
            raise ConfigError(
                f"model {spec.name!r} needs {error.name or error}: pip install 'edge-federation[client]'"
            ) from error
        called = f"; the factory is called as factory(input_shape, num_classes){hidden_by_ours(error)}"
        raise ConfigError(
            f"model {spec.name!r} for input {spec.input_shape} and {spec.num_classes} classes: {error}"
            + called * (not registry.is_ours(spec.name))
        ) from error


def header_name(module: nn.Module, input_shape: tuple[int, ...]) -> str:
    """The name of the header, found by one forward pass; the module does not change.

    Raises `ConfigError` if the outputs [B, classes] are not those of a linear layer.
    """
    made: dict[str, Tensor] = {}
    layers = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
    hooks = [
        layer.register_forward_hook(lambda _, __, output, name=name: made.update({name: output}))
        for name, layer in layers
    ]
    like = next(module.parameters(), torch.zeros(()))
    try:
        with modes.evaluating(module), torch.no_grad():
            outputs = module(torch.zeros(1, *input_shape, dtype=like.dtype, device=like.device))
    finally:
        for hook in hooks:
            hook.remove()
    names = [name for name, output in made.items() if output is outputs]
    if not names or outputs.ndim != 2:
        raise ConfigError(
            f"network {type(module).__name__} has no header: "
            "its last layer must be a torch.nn.Linear that gives one score per class"
        )
    return names[-1]


def class_layer(model: ModelSpec) -> str:
    """The layer with a row for each class: the header, or that of a detector; raises as `header_name`."""
    return registry.CLASS_LAYER if registry.is_detector(model.name) else header_of(model)


@lru_cache(maxsize=8)
def header_of(model: ModelSpec) -> str:
    """The name of the header in the network `model`; raises `ConfigError` as `header_name` does."""
    return header_name(build_model(model), model.input_shape)
