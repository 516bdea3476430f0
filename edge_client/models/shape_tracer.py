"""Traces a forward method with `torch.fx`, deciding as the method does for inputs of one shape.

`torch.fx` refuses a method that branches or loops on a number. Most such numbers are lengths of axes, which
the shape of an example states: `if height % window`, `range(x.shape[1])`. The tracer runs each operation on
an example when it meets it, and answers with the example's number. That a number was asked for stays in the
graph, as a call of `condition`: the number may be that of channels. Numbers that depend on the values of
tensors are refused, as `torch.fx` does.
"""

import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import Target, map_aggregate
from torch.fx.proxy import Attribute, Proxy, TraceError

# What tells the shape or the kind of a tensor, and nothing of its values.
SHAPES = frozenset({
    "shape", "size", "ndim", "dim", "ndimension", "numel", "nelement", "stride", "is_contiguous",
    "type", "is_floating_point", "is_complex", "get_device", "is_cuda", "requires_grad",
})  # fmt: skip
KINDS = frozenset({"dtype", "device", "layout"})
# Functions and methods whose results have as many places as a condition holds at.
SELECTING = frozenset({"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive"})


def condition(number: Any) -> Any:
    """Stands in a graph where a forward method decided by a number."""
    return number


class ShapeTracer(fx.Tracer):
    """Traces for the inputs `example` [N, ...]; the `meta` of each node has the `shape` of its tensor.

    `failed` is the node of the operation that could not be run on the example.
    """

    failed: fx.Node | None = None

    def __init__(self, example: Tensor, *, is_leaf: Callable[[nn.Module], bool] = lambda _: False) -> None:
        super().__init__()
        self._example, self._is_leaf = example, is_leaf
        self._numbers: dict[fx.Node, Any] = {}
        self._by_value: set[fx.Node] = set()
        self._runs = False

    def graph_of(self, module: nn.Module) -> fx.Graph:
        """The graph of a module in evaluation mode; `TraceError`, or what its forward method raises."""
        _, *further = inspect.signature(module.forward).parameters.values()
        defaults = {each.name: each.default for each in further if each.default is not each.empty}
        with torch.no_grad():
            return self.trace(module, concrete_args=defaults or None)

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return self._is_leaf(m) or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> "ShapeProxy":
        return ShapeProxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *more: Any,
        **named: Any,
    ) -> Any:
        made: Any = super().create_proxy(kind, target, args, kwargs, *more, **named)
        values: Any = map_aggregate((args, kwargs), _value_of)
        try:
            made.value = self._run(made.node, *values)
        except Exception:
            self.failed = made.node
            raise
        self._note(made, (args, kwargs))
        return made

    def create_node(self, kind: str, target: Target, *more: Any, **named: Any) -> fx.Node:
        node = super().create_node(kind, target, *more, **named)
        # Buffers and constants are arguments without a proxy.
        if kind == "get_attr":
            value = self._run(node, (), {})
            node.meta["shape"] = tuple(value.shape) if isinstance(value, Tensor) else ()
        return node

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        # The parts of a layer that runs are no nodes of their own.
        return forward(*args, **kwargs) if self._runs else super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        return attr_val if self._runs else super().getattr(attr, attr_val, parameter_proxy_cache)

    def to_bool(self, obj: Proxy) -> bool:
        return bool(self.number_of(obj))

    def iter(self, obj: Proxy) -> Iterator[Any]:
        return (obj[place] for place in range(self.length_of(obj)))  # type: ignore[index]

    def number_of(self, asked: Proxy) -> Any:
        """The number of a node for the example; raises `TraceError` if it depends on tensors' values."""
        node = asked.node
        if node in self._by_value or node not in self._numbers:
            raise TraceError("symbolically traced variables cannot be used as inputs to control flow")
        self.create_node("call_function", condition, (node,), {})
        return self._numbers[node]

    def length_of(self, asked: Proxy) -> int:
        """How many tensors or numbers a node has; raises `TraceError` for a single tensor."""
        node = asked.node
        if node in self._by_value or not isinstance(self._numbers.get(node), tuple | list):
            raise TraceError("a tensor cannot be iterated: its batch has any number of examples")
        return len(self._numbers[node])

    def _run(self, node: fx.Node, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        self._runs, name = True, str(node.target)
        try:
            match node.op:
                case "placeholder" if len(self.graph.nodes) == 1:
                    return self._example
                case "placeholder":
                    return args[0] if args else ()
                case "get_attr":
                    return operator.attrgetter(name)(self.root)
                case "call_module":
                    return self.root.get_submodule(name)(*args, **kwargs)
                case "call_method":
                    return getattr(args[0], name)(*args[1:], **kwargs)
                case _:
                    assert callable(node.target)
                    return node.target(*args, **kwargs)
        finally:
            self._runs = False

    def _note(self, made: "ShapeProxy", given: tuple[Any, ...]) -> None:
        """Note a tensor's shape or any other value, and whether it depends on the values of tensors."""
        node, value = made.node, made.value
        inputs: list[ShapeProxy] = []
        map_aggregate(given, lambda each: inputs.append(each) if isinstance(each, ShapeProxy) else None)
        if isinstance(value, Tensor):
            node.meta["shape"] = tuple(value.shape)
        else:
            self._numbers[node] = value
        name = str(node.args[1] if node.target is getattr else getattr(node.target, "__name__", node.target))
        measured = any(_has_tensor(each.value) for each in inputs) and not _has_tensor(value)
        if (
            any(each.node in self._by_value for each in inputs)
            or (measured and name not in SHAPES)
            or name in SELECTING
            or (name == "getitem" and any(_is_mask(each.value) for each in inputs[1:]))
        ):
            self._by_value.add(node)


class ShapeProxy(Proxy):
    """A node of the graph with its `value` for the example."""

    value: Any
    tracer: ShapeTracer

    def __getattr__(self, k: str) -> Any:
        # No number, so that no graph needs it.
        return getattr(self.value, k) if k in KINDS else ShapeAttribute(self, k)

    def __index__(self) -> int:
        return operator.index(self.tracer.number_of(self))

    def __int__(self) -> int:
        return int(self.tracer.number_of(self))

    def __float__(self) -> float:
        return float(self.tracer.number_of(self))

    def __len__(self) -> int:
        return self.tracer.length_of(self)


class ShapeAttribute(ShapeProxy, Attribute):
    """An attribute of a node, `x.shape`, which is a node of its own if it is not called."""

    def __init__(self, root: ShapeProxy, attr: str) -> None:
        Attribute.__init__(self, root, attr)

    @property
    def node(self) -> fx.Node:  # type: ignore[override]
        node: fx.Node = self._result.node
        return node

    @property
    def value(self) -> Any:
        return self._result.value

    @cached_property
    def _result(self) -> Any:
        return self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {})

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _value_of(given: Any) -> Any:
    return given.value if isinstance(given, ShapeProxy) else given


def _is_mask(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype in (torch.bool, torch.uint8)


def _has_tensor(value: object) -> bool:
    if isinstance(value, tuple | list):
        return any(map(_has_tensor, value))
    return isinstance(value, Tensor)
