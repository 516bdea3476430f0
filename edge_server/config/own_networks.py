"""Networks that are objects of this program: they get names that `[model] name` takes, as a file's have.

A name has the digest of what it stands for, since built networks are kept by name.
"""

import contextlib
import copy
import hashlib
import inspect
import pickle  # only between this process and workers that it starts
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from schemas.errors import ConfigError

if TYPE_CHECKING:
    from torch import nn

Factory = Callable[..., Any]

_networks: dict[str, Factory] = {}


@dataclass(frozen=True)
class _Copies:
    """A factory of copies of one module, with its weights."""

    module: "nn.Module"

    def __call__(self, input_shape: tuple[int, ...], num_classes: int) -> "nn.Module":
        return copy.deepcopy(self.module)


@contextlib.contextmanager
def offer_network(network: Any) -> Iterator[str]:
    """The name, inside, of a `torch.nn.Module`, or of a function `(input_shape, num_classes)` that makes one.

    A function of a module is called by that module's name. Raises `ConfigError` for anything else.
    """
    if (importable := _importable(network)) is not None:
        yield importable
        return
    name, factory = _name_network(network)
    _networks[name] = factory
    try:
        yield f"{__name__}:{name}"
    finally:
        _networks.pop(name, None)


def _importable(network: Any) -> str | None:
    """`module:function` of a function or class that another process can import."""
    module, name = getattr(network, "__module__", None), getattr(network, "__qualname__", None)
    if name is None or module in (None, "__main__"):
        return None
    return f"{module}:{name}" if getattr(sys.modules.get(module), name, None) is network else None


def _name_network(network: Any) -> tuple[str, Factory]:
    from torch import nn

    if isinstance(network, nn.Module):
        module = copy.deepcopy(network).cpu()
        digest = hashlib.sha256(repr(module).encode())
        for key, tensor in module.state_dict().items():
            digest.update(key.encode() + tensor.detach().numpy().tobytes())
        return f"{type(network).__name__}-{digest.hexdigest()[:12]}", _Copies(module)
    if not callable(network):
        raise ConfigError(
            f"{type(network).__name__} is not a network",
            key="model",
            remedy="pass its name, a torch.nn.Module, or a function (input_shape, num_classes) that "
            "makes one",
        )
    try:
        text = inspect.getsource(network)
    except (OSError, TypeError):
        text = repr(network)
    name = getattr(network, "__name__", type(network).__name__)
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}", network


def is_object(reference: str) -> bool:
    """Whether the network `reference` is an object of this program."""
    return reference.partition(":")[0] in ("__main__", __name__)


def only_here(reference: str) -> str:
    """Why no worker process can have the network `reference`; empty if they can."""
    module, _, name = reference.partition(":")
    stays = module == __name__ and name in _networks and _pickle_factory(_networks[name]) is None
    alone = f"'{name.partition('-')[0]}' is defined in this program alone"
    return alone if module == "__main__" or stays else ""


def portable() -> Mapping[str, bytes]:
    """The networks that a worker process of this one can have.

    They are pickled here, since multiprocessing would share each tensor's memory with the worker.
    """
    pickled = {name: _pickle_factory(factory) for name, factory in tuple(_networks.items())}
    return {name: data for name, data in pickled.items() if data is not None}


def take_networks(networks: Mapping[str, bytes]) -> None:
    """Have the networks of the parent process."""
    _networks.update({name: pickle.loads(data) for name, data in networks.items()})


def _pickle_factory(factory: Factory) -> bytes | None:
    try:
        data = pickle.dumps(factory)
    except Exception:  # foreign objects raise anything
        return None
    # Classes and functions are pickled by the name of their module.
    return None if b"__main__" in data else data


def __getattr__(name: str) -> Factory:
    if name.startswith("__"):
        raise AttributeError(name)
    try:
        return _networks[name]
    except KeyError:
        raise ConfigError(
            f"the network '{name}' was an object of a Python program",
            remedy="start from there, with edge_server.simulate(..., model=...)",
        ) from None
