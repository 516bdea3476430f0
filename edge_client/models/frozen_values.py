"""Which values of a traced network are frozen, and which of them its rest needs.

A value is frozen if it depends on the inputs and on untrained tensors alone, draws no random numbers, and is
the same whatever other examples are in the batch. The network is run on a few examples to find out.
"""

import hashlib
import operator
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _NormBase

from edge_client.models.attributes import PROCESSOR, device_state, seed_generators
from edge_client.models.modes import device_of
from schemas.errors import EdgeError

Numbers = dict[Any, int]  # equal operations on equal values have the same one, in all graphs of a network

PLAIN = (int, float, bool, str, type(None), torch.dtype, torch.device, torch.memory_format)
CONSTANT = "_tensor_constant"  # how `torch.fx` begins the names of tensors that a forward method makes
PROBES = 5  # examples that `Frozen` needs
CHANGES = frozenset(
    getattr(operator, name)
    for name in ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "setitem")
)  # operators that change their first argument


class NoSplit(EdgeError):
    """Why no features can stand for the inputs of a network."""


class BatchSize:
    """Stands for the number of examples in a constant."""


@dataclass(frozen=True, eq=False)
class Boundary:
    """What the rest takes from the frozen part: `stored` nodes, and others that are the same for all batches.

    `constants` are values, or lists of them, with the class `BatchSize` for the number of examples.
    """

    stored: tuple[fx.Node, ...]
    constants: Mapping[fx.Node, Any]


def number_nodes(graph: fx.Graph, numbers: Numbers, root: nn.Module) -> dict[fx.Node, int]:
    """The number of each node's operation and arguments; tensors that tracing made count by their values."""
    result: dict[fx.Node, int] = {}

    def key(value: Any) -> Any:
        if isinstance(value, fx.Node):
            return ("node", result[value])
        if isinstance(value, list | tuple):
            return (type(value).__name__, *map(key, value))
        if isinstance(value, Mapping):
            return tuple((name, key(item)) for name, item in sorted(value.items()))
        if isinstance(value, slice):
            return ("slice", key(value.start), key(value.stop), key(value.step))
        return (type(value).__name__, repr(value))

    for node in graph.nodes:
        target = node.target if isinstance(node.target, str) else id(node.target)
        if node.op == "get_attr" and str(target).startswith(CONSTANT):
            value = operator.attrgetter(str(target))(root)
            target = f"{tuple(value.shape)} {value.dtype} {_bits(value).hex()}"
        place = (node.op, target, key(node.args), key(node.kwargs))
        result[node] = numbers.setdefault(place, len(numbers))
    return result


def changes_its_input(module: nn.Module, node: fx.Node) -> bool:
    """Whether the operation may write into a tensor that it is given."""
    if node.op == "call_module":
        return any(
            getattr(part, "inplace", False) for part in module.get_submodule(str(node.target)).modules()
        )
    name = str(getattr(node.target, "__name__", node.target))
    in_place = name.endswith("_") and not name.endswith("__")
    return node.op.startswith("call") and (
        in_place or node.target in CHANGES or node.kwargs.get("inplace") is True
    )


def roots(module: nn.Module, graph: fx.Graph) -> list[fx.Node]:
    """The output, and operations without a user that change a tensor."""
    alone = (node for node in graph.nodes if not node.users)
    return [node for node in alone if node.op == "output" or changes_its_input(module, node)]


def tensors_of(module: nn.Module, node: fx.Node) -> dict[str, Tensor]:
    """The parameters and buffers that an operation reads, by their names in the module."""
    target = str(node.target)
    if node.op == "get_attr":
        value = operator.attrgetter(target)(module)
        return {target: value} if isinstance(value, Tensor) else {}
    if node.op != "call_module":
        return {}
    layer = module.get_submodule(target)
    every = (*layer.named_parameters(remove_duplicate=False), *layer.named_buffers(remove_duplicate=False))
    return {f"{target}.{name}": tensor for name, tensor in every}


def find_needed(wanted: Iterable[fx.Node], given: Collection[fx.Node]) -> Iterator[fx.Node]:
    """The wanted nodes and all that they depend on, but for what is given."""
    waiting, seen = list(wanted), set[fx.Node]()
    while waiting:
        node = waiting.pop()
        if node not in seen and node not in given:
            seen.add(node)
            waiting.extend(node.all_input_nodes)
            yield node


@dataclass(frozen=True)
class _Value:
    """What a node gave: if it drew random numbers, a tensor's kind and first row, or another value."""

    drawn: bool
    other: Any = None
    shape: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    row: bytes = b""


class _Observed(fx.Interpreter):
    """Runs a graph and notes its values."""

    def __init__(self, module: nn.Module, graph: fx.Graph) -> None:
        super().__init__(module, graph=graph)
        self._device = device_of(module)
        self.values: dict[fx.Node, _Value] = {}

    def run_node(self, n: fx.Node) -> Any:
        before = _random_states(self._device)
        value = super().run_node(n)
        drawn = before != _random_states(self._device)
        if isinstance(value, Tensor):
            row = _bits(value[:1] if value.ndim else value)
            self.values[n] = _Value(drawn, None, tuple(value.shape), value.dtype, row)
        else:
            self.values[n] = _Value(drawn, value)
        return value


def _bits(tensor: Tensor) -> bytes:
    flat = tensor.detach().cpu().reshape(-1).contiguous()
    return hashlib.sha256(flat.view(torch.uint8).numpy().data).digest()


def _random_states(device: torch.device) -> tuple[object, ...]:
    torchs = (device_state(each).cpu().numpy().tobytes() for each in {PROCESSOR, device})
    numpys = np.random.get_state(legacy=False)["state"]
    return (*torchs, numpys["key"].tobytes(), numpys["pos"], random.getstate())


class Frozen:
    """The frozen values of a graph of `module`; the tensors `changing`, by identity, are trained.

    `examples` are [PROBES, ...]; the module's buffers may change.
    """

    def __init__(
        self, module: nn.Module, graph: fx.Graph, changing: Collection[int], examples: Tensor
    ) -> None:
        self._module, self._graph, self._changing = module, graph, changing
        self._inputs = examples[0].numel()
        self._three, self._others = self._observe(examples[:3]), self._observe(examples[[0, 3, 4]])
        self._two = self._observe(examples[:2])
        self.nodes: dict[fx.Node, None] = {}
        for node in graph.nodes:
            if self._is_frozen(node):
                self.nodes[node] = None

    def boundary(self) -> Boundary:
        """The values to store, as few numbers as possible without storing what stands before weights."""
        rest = dict.fromkeys(find_needed(roots(self._module, self._graph), self.nodes))
        while (more := self._better_in_rest(rest)) is not None:
            rest[more] = None
        crossing = self._crossing(rest)
        constants = {node: value for node in crossing for value in self._constant(node)}
        return Boundary(tuple(node for node in crossing if node not in constants), constants)

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        """The shape of a tensor per example."""
        return (self._three[node].shape or ())[1:]

    def _observe(self, batch: Tensor) -> Mapping[fx.Node, _Value]:
        run = _Observed(self._module, self._graph)
        with seed_generators(0, device_of(self._module)), torch.no_grad():
            run.run(batch.clone())
        return run.values

    def _is_frozen(self, node: fx.Node) -> bool:
        if node.op == "output" or self._three[node].drawn or node in roots(self._module, self._graph):
            return False
        if any(id(tensor) in self._changing for tensor in tensors_of(self._module, node).values()):
            return False
        joins = node.op == "call_module" and any(
            map(_joins_examples, self._module.get_submodule(str(node.target)).modules())
        )
        differs = self._is_by_example(node) and self._three[node].row != self._others[node].row
        return not joins and not differs and all(given in self.nodes for given in node.all_input_nodes)

    def _is_by_example(self, node: fx.Node) -> bool:
        """Whether the value is a tensor with a row per example."""
        three, two = self._three[node].shape, self._two[node].shape
        return bool(three and two and (three[0], two[0]) == (3, 2) and three[1:] == two[1:])

    def _crossing(self, rest: Collection[fx.Node]) -> list[fx.Node]:
        return [node for node in self.nodes if node not in rest and any(user in rest for user in node.users)]

    def _better_in_rest(self, rest: Collection[fx.Node]) -> fx.Node | None:
        """A value that cannot be stored, or one without weights that takes more than what it is made of."""
        crossing = self._crossing(rest)
        for node in reversed(crossing):
            size = self._size(node)
            if size is None:
                return node
            fixed = node.op == "placeholder" or changes_its_input(self._module, node)
            if not size or fixed or tensors_of(self._module, node):
                continue
            new = [given for given in node.all_input_nodes if given not in crossing and given not in rest]
            sizes = [0 if given.op == "get_attr" else self._size(given) for given in new]
            if all(each is not None for each in sizes) and sum(filter(None, sizes)) < size:
                return node
        return None

    def _size(self, node: fx.Node) -> int | None:
        """The numbers to store per example, 0 of a constant; None of what cannot be stored."""
        if self._constant(node):
            return 0
        is_stored = self._is_by_example(node) and self._three[node].dtype == torch.float32
        return prod(self.shape(node)) if is_stored else None

    def _constant(self, node: fx.Node) -> list[Any]:
        """A list of the value that all batches share, or of `BatchSize`; empty without one."""
        three, others, two = (values[node] for values in (self._three, self._others, self._two))
        return [] if three.shape is not None else _common(three.other, others.other, two.other)


def _common(three: Any, others: Any, two: Any) -> list[Any]:
    """A list of what a value is for batches of three, three others and two; empty if it has no rule."""
    if isinstance(three, PLAIN) and three == others == two:
        return [three]
    if type(three) is int and (three, others, two) == (3, 3, 2):
        return [BatchSize]
    kinds = {type(value) for value in (three, others, two)}
    if len(kinds) > 1 or not isinstance(three, tuple | list) or not len(three) == len(others) == len(two):
        return []
    items = [_common(*each) for each in zip(three, others, two, strict=True)]
    return [tuple(item[0] for item in items)] if all(items) else []


def _joins_examples(part: nn.Module) -> bool:
    """Whether a normalisation takes the statistics of its batch."""
    is_batch = isinstance(part, _NormBase) and "Instance" not in type(part).__name__
    return is_batch and (part.training or part.running_mean is None)
