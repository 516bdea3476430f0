"""A network as two functions: a frozen part from inputs to features, the rest from features to outputs."""

import contextlib
import copy
import logging
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import prod
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, fx, nn

from edge_client.models import frozen_values
from edge_client.models.attributes import seed_generators
from edge_client.models.frozen_values import BatchSize, Frozen, NoSplit, Numbers, number_nodes
from edge_client.models.modes import device_of, evaluating, frozen_parts
from edge_client.models.shape_tracer import ShapeTracer

log = logging.getLogger(__name__)

BATCH = 16  # examples of a frozen pass: the bits of a row depend on the number of rows
MAX_GROWTH = 4  # numbers of an example's features, at most, per number of its inputs: both are in memory
FEW = 4096  # numbers of features that any example may have
TRACED = 2  # examples of a trace: fewer than those that parts are compared on, so that none counts on them
TOLERANCE = 1e-3  # largest difference of both parts from the network, relative to its largest output


@dataclass(frozen=True, eq=False)
class SplitNetwork:
    """`rest(features(inputs))` gives the network's outputs; both are made of its own layers and tensors.

    `rest` takes features [N, width]; its layers are those of the network, with their modes, and some networks
    do other things in training besides, for which `rest` has a mode itself. `arrays` are the names of
    the tensors that the frozen part reads. `batch` is the number of examples of a frozen pass. It was found
    for networks whose arrays `trained` change, and inputs of `input_shape`.
    """

    frozen: nn.Module = field(repr=False)
    rest: nn.Module = field(repr=False)
    width: int
    arrays: frozenset[str]
    batch: int = BATCH
    trained: frozenset[str] = frozenset()
    input_shape: tuple[int, ...] = ()
    _narrower: dict[str, nn.Module] = field(default_factory=dict, repr=False)

    def rest_of(self, key: str, make: Callable[[], nn.Module]) -> nn.Module:
        """What follows these features in training in a narrower network, which is made once for its `key`.

        Raises `NoSplit` if its features are others, as they are where what is frozen is narrower, too.
        """
        if key not in self._narrower:
            self._narrower[key] = self._find_rest(make())
        return self._narrower[key]

    def _find_rest(self, narrower: nn.Module) -> nn.Module:
        own = find_split(narrower, self.trained, self.input_shape, batch=self.batch)
        shown = torch.randn(2, *self.input_shape, generator=torch.Generator().manual_seed(0))
        inputs = shown.to(device_of(narrower))
        both = (replace(parts, batch=len(inputs)).features(inputs) for parts in (own, self))
        if (own.arrays, own.width) != (self.arrays, self.width) or not torch.equal(*both):
            raise NoSplit("a smaller width has other features")
        return own.rest_in(training=True)

    def rest_in(self, *, training: bool) -> nn.Module:
        """The rest as it is in training or in evaluation."""
        by_mode = self.rest
        if not isinstance(by_mode, _RestByMode):
            return by_mode
        return by_mode.in_training if training else by_mode.in_evaluation

    @property
    def has_modes(self) -> bool:
        """Whether the rest does other things in training than in evaluation, besides what its layers do."""
        return isinstance(self.rest, _RestByMode)

    def reruns(self, layer: str) -> bool:
        """Whether the rest runs this layer, and the frozen part does not."""
        rests = {id(rest): rest for rest in (self.rest_in(training=True), self.rest_in(training=False))}
        return all(_runs(rest, layer) for rest in rests.values()) and not _runs(self.frozen, layer)

    @property
    def feature_network(self) -> nn.Module:
        """The frozen part as a network with the features [N, width] as its only output."""
        graph = fx.Graph()
        (values,) = (graph.graph_copy(self.frozen.graph, {}),)  # type: ignore[arg-type]
        flat = [graph.call_function(torch.flatten, (value, 1)) for value in values]  # type: ignore[union-attr]
        graph.output(graph.call_function(torch.cat, (flat, 1)) if len(flat) > 1 else flat[0])
        return fx.GraphModule(self.frozen, graph)

    def features(self, inputs: Tensor) -> Tensor:
        """The features [N, width] float32 of inputs [N, ...], computed in evaluation mode.

        All passes have the same number of examples, the last one zeros among them, so that the bits of an
        example's features do not depend on the others.
        """
        device = device_of(self.frozen)
        rows = torch.empty((len(inputs), self.width), dtype=torch.float32, device=device)
        with evaluating(self.frozen), torch.no_grad():
            for start in range(0, len(inputs), self.batch):
                part = inputs[start : start + self.batch]
                whole = torch.zeros((self.batch, *inputs.shape[1:]), dtype=inputs.dtype, device=device)
                whole[: len(part)] = part
                values = [value.reshape(self.batch, -1) for value in self.frozen(whole)]
                rows[start : start + len(part)] = torch.cat(values, dim=1)[: len(part)]
        return rows


_results: WeakKeyDictionary[nn.Module, dict[Any, SplitNetwork | str]] = WeakKeyDictionary()


def split(module: nn.Module, trained: Collection[str], input_shape: tuple[int, ...]) -> SplitNetwork | None:
    """The parts of a network of which only the arrays `trained` change; None, with the reason in the log."""
    try:
        return find_split(module, trained, input_shape)
    except NoSplit as reason:
        log.info("the network is not split: %s", reason)
        return None


def find_split(
    module: nn.Module,
    trained: Collection[str],
    input_shape: tuple[int, ...],
    *,
    batch: int | None = None,
) -> SplitNetwork:
    """As `split`, but raises `NoSplit`. What is found is kept as long as the module, which does not change.

    Modes are those of `training_only`. The number of examples of a frozen pass is tried unless `batch` is it,
    as in a network with the same frozen part.
    """
    results, key = _results.setdefault(module, {}), (frozenset(trained), input_shape)
    if key not in results:
        try:
            results[key] = _Search(module, frozenset(trained), input_shape, batch).find()
        except NoSplit as reason:
            results[key] = str(reason)
        except Exception as error:
            # A user's own network may raise anything, and is then trained as a whole.
            results[key] = f"it cannot be tried in parts: {_first_line(error)}"
    result = results[key]
    if isinstance(result, str):
        raise NoSplit(result)
    return result


class _Search:
    """The search for one network's split, with a copy that has the same parameters."""

    def __init__(
        self, module: nn.Module, trained: frozenset[str], input_shape: tuple[int, ...], batch: int | None
    ) -> None:
        self._module, self._trained, self._input_shape, self._batch = module, trained, input_shape, batch
        self._copy = copy.deepcopy(module, {id(weight): weight for weight in module.parameters()})
        self._numbers: Numbers = {}
        self._whole_blocks = False

    def find(self) -> SplitNetwork:
        """As `torch.fx` traces, or where that leaves blocks whole, for inputs of this shape."""
        reason, plain = "", list[SplitNetwork]()
        try:
            plain = [self._find(self._trace_plainly)]
        except NoSplit as error:
            reason = str(error)
        if plain and not self._whole_blocks:
            return plain[0]
        try:
            return self._find(self._trace_by_shapes)
        except Exception as error:
            # Nothing is lost: the tracer runs a user's own code, which may raise anything.
            log.debug("not traced by shapes: %s", error)
        if not plain:
            raise NoSplit(reason)
        return plain[0]

    def _find(self, trace: Callable[[], fx.Graph]) -> SplitNetwork:
        self._numbers = {}
        training, again = (self._trace(trace, training=True, seed=seed) for seed in (0, 1))
        evaluation = self._trace(trace, training=False)
        if self._number_of_result(training) != self._number_of_result(again):
            raise NoSplit("it is another network each time it is run")
        self._set_modes(training=True)
        every = (*_every_name(self._copy.named_parameters), *_every_name(self._copy.named_buffers))
        changing = {id(tensor) for name, tensor in every if name in self._trained}
        frozen = Frozen(self._copy, training, changing, self._examples(frozen_values.PROBES))
        cut = _Cut(frozen, training, evaluation, self._numbers, self._copy)
        if cut.width > max(FEW, MAX_GROWTH * prod(self._input_shape)):
            raise NoSplit(f"an example would have {cut.width} features of {prod(self._input_shape)} inputs")
        own = self._apply(cut, self._copy)
        if not own.arrays:
            raise NoSplit("its first layers are trained, or random in training")
        self._compare(own)
        batch = self._batch or (BATCH if self._is_independent(own) else 1)
        return self._apply(cut, self._module, batch=batch)

    def _apply(self, cut: "_Cut", module: nn.Module, *, batch: int = BATCH) -> SplitNetwork:
        parts = cut.apply(module, batch=batch)
        return replace(parts, trained=self._trained, input_shape=self._input_shape)

    def _trace(self, trace: Callable[[], fx.Graph], *, training: bool, seed: int = 0) -> fx.Graph:
        self._set_modes(training=training)
        try:
            with seed_generators(seed, device_of(self._copy)):
                return trace()
        except Exception as error:
            raise NoSplit(f"it cannot be traced: {_first_line(error)}") from error

    def _trace_plainly(self) -> fx.Graph:
        tracer = _Tracer()
        graph = tracer.trace(self._copy)
        self._whole_blocks |= tracer.whole_blocks
        return graph

    def _trace_by_shapes(self) -> fx.Graph:
        # Layers run as they are met, and normalisations in training change their statistics.
        buffers = [buffer.clone() for buffer in self._copy.buffers()]
        graph = ShapeTracer(self._examples(TRACED)).graph_of(self._copy)
        with torch.no_grad():
            for buffer, value in zip(self._copy.buffers(), buffers, strict=True):
                buffer.copy_(value)
        return graph

    def _set_modes(self, *, training: bool) -> None:
        self._copy.train(training)
        for part in frozen_parts(self._copy, self._trained):
            part.eval()

    def _number_of_result(self, graph: fx.Graph) -> int:
        return list(number_nodes(graph, self._numbers, self._copy).values())[-1]

    def _examples(self, count: int) -> Tensor:
        drawn = np.random.default_rng(0).standard_normal((count, *self._input_shape), np.float32)
        return torch.from_numpy(drawn).to(device_of(self._copy))

    def _compare(self, parts: SplitNetwork) -> None:
        """Raise `NoSplit` unless the parts give what the network gives, in both modes."""
        examples = self._examples(frozen_values.PROBES)
        features = parts.features(examples)
        for training in (True, False):
            parts.rest.train(training)
            self._set_modes(training=training)
            buffers = [buffer.clone() for buffer in self._copy.buffers()]
            with torch.no_grad():
                with seed_generators(0, examples.device):
                    wanted = self._copy(examples.clone())
                for buffer, value in zip(self._copy.buffers(), buffers, strict=True):
                    buffer.copy_(value)
                with seed_generators(0, examples.device):
                    result = parts.rest(features.clone())
            if not isinstance(wanted, Tensor) or not _is_close(result, wanted):
                raise NoSplit("its parts do not give what it gives itself")

    def _is_independent(self, parts: SplitNetwork) -> bool:
        """Whether the bits of a row do not depend on its place in the batch."""
        examples = self._examples(BATCH)
        rows, turned = parts.features(examples), parts.features(examples.roll(5, 0))
        return torch.equal(rows.roll(5, 0), turned)


class _Tracer(fx.Tracer):
    """Traces into parts, but for `whole_blocks`, whose code decides by numbers, if there are some."""

    whole_blocks = False

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        before = list(self.graph.nodes)
        try:
            return super().call_module(m, forward, args, kwargs)
        except Exception:
            for node in reversed([node for node in self.graph.nodes if node not in before]):
                self.graph.erase_node(node)
            self.whole_blocks = True
            return self.create_proxy("call_module", self.path_of_module(m), args, kwargs)


class _Cut:
    """The frozen part and the rest as graphs, made of the graphs of both modes."""

    def __init__(
        self, frozen: Frozen, training: fx.Graph, evaluation: fx.Graph, numbers: Numbers, root: nn.Module
    ) -> None:
        boundary = frozen.boundary()
        self._shapes = [frozen.shape(node) for node in boundary.stored]
        self._sizes = [prod(shape) for shape in self._shapes]
        self._root, self._frozen = root, _copy_frozen(boundary.stored, frozen.nodes)
        graphs = {id(graph): number_nodes(graph, numbers, root) for graph in (training, evaluation)}
        self._stored = [graphs[id(training)][node] for node in boundary.stored]
        self._constants = {graphs[id(training)][node]: value for node, value in boundary.constants.items()}
        self._rests = [self._copy_rest(training, graphs[id(training)])]
        if [*graphs[id(training)].values()][-1] != [*graphs[id(evaluation)].values()][-1]:
            self._rests.append(self._copy_rest(evaluation, graphs[id(evaluation)]))
        for graph in (self._frozen, *self._rests):
            call_constants(graph, root)

    @property
    def width(self) -> int:
        return sum(self._sizes)

    def apply(self, module: nn.Module, *, batch: int = BATCH) -> SplitNetwork:
        """The parts, of the layers and tensors of `module`."""
        frozen, *rests = (self._module(module, graph) for graph in (self._frozen, *self._rests))
        rest = rests[0] if len(rests) == 1 else _RestByMode(*rests)
        arrays = (
            name for part in (frozen.named_parameters, frozen.named_buffers) for name, _ in _every_name(part)
        )
        return SplitNetwork(frozen, rest, self.width, frozenset(arrays), batch)

    def _module(self, module: nn.Module, graph: fx.Graph) -> fx.GraphModule:
        # Tracing adds tensors that the code makes of constants to the traced copy alone.
        nodes = (node for node in graph.nodes if node.op in ("call_module", "get_attr"))
        ops = {str(node.target): node.op for node in nodes}
        held = {name: _attribute(module, self._root, name) for name in ops}
        for name, value in held.items():
            if ops[name] == "call_module" and isinstance(value, Tensor):
                held[name] = Constant(value)
        return fx.GraphModule(held, graph)

    def _copy_rest(self, graph: fx.Graph, numbers: Mapping[fx.Node, int]) -> fx.Graph:
        """A graph from features to the outputs of `graph`."""
        rest = fx.Graph()
        features = rest.placeholder("features")
        copied: dict[fx.Node, Any] = {}
        places = dict(zip(self._stored, accumulate(self._sizes, initial=0), strict=False))
        wanted = frozen_values.roots(self._root, graph)
        given = {node for node in graph.nodes if numbers[node] in places or numbers[node] in self._constants}
        needed = set(frozen_values.find_needed(wanted, given))
        writes = any(frozen_values.changes_its_input(self._root, node) for node in needed)
        count = rest.call_method("size", (features, 0))
        for node in graph.nodes:
            number = numbers[node]
            if number in places:
                shape = self._shapes[self._stored.index(number)]
                part = rest.call_method("narrow", (features, 1, places[number], prod(shape)))
                # An operation of the rest that writes into it must not change the caller's features.
                part = rest.call_method("clone", (part,)) if writes else part
                copied[node] = rest.call_method("reshape", (part, count, *shape))
            elif number in self._constants:
                copied[node] = _with_count(self._constants[number], count)
            elif node.op == "placeholder" and node in needed:
                raise NoSplit("in evaluation it uses inputs that it does not use in training")
            elif node in needed:
                copied[node] = rest.node_copy(node, copied.__getitem__)
        if not count.users:
            rest.erase_node(count)
        return rest


class Constant(nn.Module):
    """A tensor outside the network's state: a graph module's own buffers are all part of one."""

    value: Tensor

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.register_buffer("value", value, persistent=False)

    def forward(self) -> Tensor:
        return self.value


def call_constants(graph: fx.Graph, root: nn.Module) -> set[str]:
    """Let a graph call what holds a tensor outside the state of `root`, in place of referring to it.

    Returns their names, each of which has to be a `Constant` in a module of the graph.
    """
    state, found = root.state_dict(), set[str]()
    for node in [node for node in graph.nodes if node.op == "get_attr"]:
        name = str(node.target)
        if name not in state and isinstance(_attribute(root, root, name), Tensor):
            with graph.inserting_before(node):
                node.replace_all_uses_with(graph.call_module(name))
            graph.erase_node(node)
            found.add(name)
    return found


class _RestByMode(nn.Module):
    """One graph in training and another in evaluation, as the network itself is in either mode."""

    def __init__(self, training: nn.Module, evaluation: nn.Module) -> None:
        super().__init__()
        self.in_training = training
        # No submodule: torch's `functional_call` would swap the layers of both twice, and restore them once.
        self._evaluation = (evaluation,)

    @property
    def in_evaluation(self) -> nn.Module:
        return self._evaluation[0].eval()

    def forward(self, features: Tensor) -> Tensor:
        outputs: Tensor = (self.in_training if self.training else self.in_evaluation)(features)
        return outputs


def _runs(part: nn.Module, layer: str) -> bool:
    """Whether a part calls the layer, or a block that has it."""
    called = (str(node.target) for node in part.graph.nodes if node.op == "call_module")  # type: ignore[union-attr]
    return any(f"{layer}.".startswith(f"{name}.") for name in called)


def _copy_frozen(stored: Collection[fx.Node], frozen: Collection[fx.Node]) -> fx.Graph:
    """A graph from inputs to the stored values."""
    graph = fx.Graph()
    needed = set(frozen_values.find_needed(stored, ()))
    copied: dict[fx.Node, fx.Node] = {}
    for node in frozen:
        if node in needed or node.op == "placeholder":
            copied[node] = graph.node_copy(node, copied.__getitem__)
    graph.output(tuple(copied[node] for node in stored))
    return graph


def _attribute(module: nn.Module, other: nn.Module, name: str) -> Any:
    for each in (module, other):
        with contextlib.suppress(AttributeError):
            return operator.attrgetter(name)(each)
    raise NoSplit(f"it has no {name}")


def _with_count(value: Any, count: fx.Node) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_count(item, count) for item in value)
    return count if value is BatchSize else value


def _every_name(method: Any) -> Any:
    return method(remove_duplicate=False)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _is_close(one: Tensor, other: Tensor) -> bool:
    scale = float(other.abs().max()) if other.numel() else 0.0
    return one.shape == other.shape and torch.allclose(
        one, other, rtol=0, atol=TOLERANCE * max(scale, 1e-6), equal_nan=True
    )
