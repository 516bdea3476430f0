"""The tensors of equal networks in one stack, and an optimizer for stacks."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edge_client.models.fixed_state import sent_tensors
from edge_client.training.optimizers import OPTIMIZERS
from schemas.strategy import TrainingPlan


class TrainsAlone(Exception):
    """Why a device's training cannot be part of a cohort."""


@dataclass(frozen=True, eq=False)
class Member:
    """A device's copy of a module, and of the part of it that is trained: the module, or its `rest`."""

    module: nn.Module
    network: nn.Module


class Stack:
    """The tensors of up to `size` copies of a network, as [size, ...] by the module's names.

    A copy's tensors are views of its row, so that whatever changes one changes the other. Tensors of the
    module outside the network are the module's own in all copies.
    """

    def __init__(self, module: nn.Module, network: nn.Module, size: int) -> None:
        self._module, self._network = module, network
        names = {id(tensor): name for name, tensor in _tensors(module)}
        # What only the network has, such as the constants of a traced one, is not sent.
        self.names = {name: names.get(id(tensor), f"/{name}") for name, tensor in _tensors(network)}
        self._own = {self.names[name]: tensor for name, tensor in _tensors(network)}
        self.tensors = {
            name: each.detach().new_empty((size, *each.shape)) for name, each in self._own.items()
        }
        stacked = {id(tensor): name for name, tensor in self._own.items()}
        self._parts = {id(part) for each in (module, network) for part in find_parts(each, stacked)}
        shared = {name: tensor for name, tensor in _tensors(module) if id(tensor) not in stacked}
        self._shared = list(shared.values())
        self._first = [tensor.detach().clone() for tensor in self._shared]
        self._sent = {name: stacked.get(id(tensor), tensor) for name, tensor in sent_tensors(module).items()}
        self.shared = frozenset(self._sent.keys() & shared.keys())

    def add(self, row: int, *, alike: bool = False) -> Member:
        """A copy of the module with its present numbers, whose tensors are views of the row.

        Raises `TrainsAlone` if the module has other numbers outside the network than the first one had,
        unless they are known to be `alike`.
        """
        if not alike and not all(map(torch.equal, self._shared, self._first)):
            raise TrainsAlone("frozen layers of devices differ")
        views = dict[int, Tensor]()
        for name, tensor in self._own.items():
            view = self.tensors[name][row]
            view.copy_(tensor.detach())
            views[id(tensor)] = _like(tensor, view)
        copies = dict[int, nn.Module]()
        both = (self._module, self._network)
        return Member(*(copy_module(each, views, self._parts, copies) for each in both))

    def sent_by(self, row: int) -> dict[str, Tensor]:
        """The tensors of a row's copy that travel as the model."""
        sent = self._sent.items()
        return {name: self.tensors[at][row] if isinstance(at, str) else at for name, at in sent}


def find_parts(module: nn.Module, tensors: Collection[int]) -> list[nn.Module]:
    """The parts of a module with tensors of these ids, themselves or within them."""
    inner = [part for each in _children(module) for part in find_parts(each, tensors)]
    own = (*module._parameters.values(), *module._buffers.values())
    return [module, *inner] if inner or any(id(tensor) in tensors for tensor in own) else []


def _children(module: nn.Module) -> Iterator[nn.Module]:
    yield from module.children()
    for value in vars(module).values():
        if isinstance(value, tuple):
            yield from (each for each in value if isinstance(each, nn.Module))


def copy_module(
    module: nn.Module, tensors: Mapping[int, Tensor], parts: Collection[int], copies: dict[int, nn.Module]
) -> nn.Module:
    """A copy of a module with its own hooks, and other `tensors` in place of those with these ids.

    Of its parts, those with the ids `parts` are copied, and others are its own. `copies` has what is copied
    already. `copy.deepcopy` takes ten times as long.
    """
    if id(module) not in parts:
        return module
    if id(module) in copies:
        return copies[id(module)]
    copies[id(module)] = new = object.__new__(type(module))
    own = vars(module)
    modules = {
        name: None if each is None else copy_module(each, tensors, parts, copies)
        for name, each in own["_modules"].items()
    }
    held = {
        kind: {name: tensors.get(id(each), each) for name, each in own[kind].items()}
        for kind in ("_parameters", "_buffers")
    }
    others = {
        # Besides dicts, such as those of hooks, nothing is changed in place.
        name: each.copy() if isinstance(each, dict) else _copy_parts(each, tensors, parts, copies)
        for name, each in own.items()
    }
    new.__dict__ = {**others, **held, "_modules": modules}
    return new


def _copy_parts(
    value: Any, tensors: Mapping[int, Tensor], parts: Collection[int], copies: dict[int, nn.Module]
) -> Any:
    """The value, with copies of modules that it holds as a tuple, out of sight of their owner."""
    if not isinstance(value, tuple) or not any(isinstance(each, nn.Module) for each in value):
        return value
    return tuple(copy_module(each, tensors, parts, copies) for each in value)


def _tensors(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters()
    yield from module.named_buffers()


def _like(tensor: Tensor, view: Tensor) -> Tensor:
    return nn.Parameter(view, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else view


class StackOptimizer:
    """Steps on stacks [N, ...] of parameters, each row with the rate of its device."""

    def __init__(self, stacks: Mapping[str, Tensor], plan: TrainingPlan) -> None:
        self._names, self._plan = list(stacks), plan
        self._optimizer = OPTIMIZERS[plan.optimizer]([nn.Parameter(stack) for stack in stacks.values()], plan)

    def narrow(self, rows: int) -> None:
        """Train only the first rows from now on."""
        optimizer = self._optimizer
        optimizer.parameters = [nn.Parameter(each.detach()[:rows]) for each in optimizer.parameters]
        optimizer.state = {
            place: {name: value[:rows] if value.ndim else value for name, value in state.items()}
            for place, state in optimizer.state.items()
        }

    def step(self, gradients: Mapping[str, Tensor], rates: Sequence[float]) -> None:
        """Update the stacks by gradients [N, ...]; the number of rates is that of the rows."""
        for parameter, name in zip(self._optimizer.parameters, self._names, strict=True):
            parameter.grad = gradients[name]
        groups: dict[float, list[int]] = {}
        for row, rate in enumerate(rates):
            groups.setdefault(rate, []).append(row)
        if len(groups) == 1:
            self._optimizer.rate = rates[0]
            self._optimizer.step()
        else:
            self._step_apart(groups)

    def _step_apart(self, groups: Mapping[float, list[int]]) -> None:
        """Step the rows of each rate as copies, which are written back."""
        whole = self._optimizer
        after: dict[int, dict[str, Tensor]] = {}
        for rate, rows in groups.items():
            index = torch.tensor(rows, device=whole.parameters[0].device)
            part = OPTIMIZERS[self._plan.optimizer]([], self._plan)
            part.rate, part.parameters = rate, [_take_rows(each, index) for each in whole.parameters]
            for place, state in whole.state.items():
                part.state[place] = {
                    name: value[index] if value.ndim else value.clone() for name, value in state.items()
                }
            part.step()
            with torch.no_grad():
                for parameter, taken in zip(whole.parameters, part.parameters, strict=True):
                    parameter.index_copy_(0, index, taken)
                for place, state in part.state.items():
                    mine = after.setdefault(place, {})
                    for name, value in state.items():
                        # All rows have made equally many steps.
                        mine.setdefault(
                            name, torch.empty_like(whole.parameters[place]) if value.ndim else value
                        )
                        if value.ndim:
                            mine[name].index_copy_(0, index, value)
        whole.state = after


def _take_rows(parameter: nn.Parameter, index: Tensor) -> nn.Parameter:
    """A copy of these rows, with their gradient."""
    taken = nn.Parameter(parameter.detach()[index])
    assert parameter.grad is not None
    taken.grad = parameter.grad[index]
    return taken
