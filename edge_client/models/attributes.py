"""What a network keeps in Python attributes: plain tensors, arrays, numbers, generators, in any container.

Such values are in no state dict. They do not travel with a model, and stay what a forward pass made of them.
"""

import contextlib
import inspect
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

# The global random generators that a network may draw from: torch's, numpy's and Python's.

PROCESSOR = torch.device("cpu")


@contextlib.contextmanager
def seed_generators(seed: int, device: torch.device = PROCESSOR) -> Iterator[None]:
    """Seed all generators inside, with that of the `device`, and restore them after."""
    numpys, pythons = np.random.get_state(legacy=True), random.getstate()
    torchs = {each: device_state(each) for each in (PROCESSOR, device)}
    # torch.manual_seed would store the seed, with the call stack, for each unused kind of device.
    (torch.default_generator.manual_seed if device == PROCESSOR else torch.manual_seed)(seed)
    np.random.seed(seed % 2**32)
    random.seed(seed)
    try:
        yield
    finally:
        for each, state in torchs.items():
            set_device_state(each, state)
        np.random.set_state(numpys)
        random.setstate(pythons)


def device_state(device: torch.device) -> Tensor:
    """The state of the generator of torch's first device of this kind."""
    state: Tensor = (torch if device == PROCESSOR else torch.get_device_module(device)).get_rng_state()
    return state


def set_device_state(device: torch.device, state: Tensor) -> None:
    (torch if device == PROCESSOR else torch.get_device_module(device)).set_rng_state(state)


VALUES = (int, float, complex, str, bytes, type(None), np.generic, torch.dtype, torch.device)
LISTS = (list, tuple, set, frozenset)
CODE = (type, ModuleType, MethodType, BuiltinFunctionType)
WITHOUT_NUMBERS = sys.stdlib_module_names - {"types"}
"""Where objects come from that are not looked into: loggers, locks, references."""
TORCHS = frozenset(vars(nn.Module()))  # torch's own: parameters, buffers, parts, hooks, mode
OURS = ("torch.", "edge_client.")

Attributes = Mapping[str, object]


def users_parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """The parts with their names whose classes are neither torch's nor this package's."""
    parts = module.named_modules()
    return [(name, part) for name, part in parts if not f"{type(part).__module__}.".startswith(OURS)]


def attributes_of(module: nn.Module, parts: Sequence[tuple[str, nn.Module]]) -> dict[str, object]:
    """Copies of the values that these parts of `module` keep in attributes, by their places."""
    if not parts:
        return {}
    # What is registered is no attribute, wherever else it is referred to.
    registered = (*module.modules(), *module.parameters(), *module.buffers())
    seen = {id(each) for each in registered}
    found: dict[str, object] = {}
    for name, part in parts:
        for key, value in vars(part).items():
            if key not in TORCHS:
                found.update(_values(f"{name}.{key}" if name else key, value, seen))
    return found


def differing_places(one: Attributes, other: Attributes) -> list[str]:
    """The places at which two networks' attributes are not equal to the bit."""
    return [
        place
        for place in {**one, **other}
        if place not in one or place not in other or not _is_same(one[place], other[place])
    ]


def _values(place: str, value: Any, seen: set[int]) -> Iterator[tuple[str, object]]:
    if isinstance(value, VALUES):
        yield place, value
    elif id(value) not in seen:
        seen.add(id(value))
        inner = _inside(value)
        if inner is None:
            yield place, _copy_value(value)
        else:
            yield f"{place} (length)", len(inner)
            for key, item in inner.items():
                yield from _values(f"{place}{key}", item, seen)


def _inside(value: Any) -> Mapping[str, Any] | None:
    """What a container or an object holds; None for a tensor, an array or a generator."""
    if isinstance(value, Tensor | np.ndarray | torch.Generator | np.random.RandomState | random.Random):
        return None
    if isinstance(value, np.random.Generator):
        return {"": repr(value.bit_generator.state)}
    if isinstance(value, Mapping):
        return {f"[{key!r}]": item for key, item in value.items()}
    if isinstance(value, LISTS):
        items = sorted(value, key=repr) if isinstance(value, set | frozenset) else value
        return {f"[{number}]": item for number, item in enumerate(items)}
    if isinstance(value, nn.Module):
        # A module in a plain list is no part of the network.
        own = {**value._parameters, **value._buffers, **value._modules}
        return {f".{key}": item for key, item in own.items()}
    if isinstance(value, FunctionType):
        return {f".{key}": item for key, item in inspect.getclosurevars(value).nonlocals.items()}
    if isinstance(value, CODE) or type(value).__module__.partition(".")[0] in WITHOUT_NUMBERS:
        return {}
    return {f".{key}": item for key, item in getattr(value, "__dict__", {}).items()}


def _copy_value(value: Any) -> object:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return value.copy()
    if isinstance(value, torch.Generator):
        return value.get_state()
    return repr(value.getstate() if isinstance(value, random.Random) else value.get_state(legacy=False))


def _is_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return is_equal(one, other)
    if isinstance(one, np.ndarray):
        return (one.shape, one.dtype, one.tobytes()) == (other.shape, other.dtype, other.tobytes())
    return bool(one == other or (one != one and other != other))


def is_equal(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors have equal types, shapes and numbers; nan equals nan."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    same = one == other.to(one.device)
    return bool((same | ((one != one) & (other != other).to(one.device))).all())
