"""Forward passes of a network and of sub-models cut from it, which share the layers that they have in common.

A layer whose inputs are those of the whole network computes all or some of its output channels: they are
taken from the whole network's pass over the same batch. What follows channel by channel is shared too. The
sub-models of `two-nn` share everything up to their first linear layer. Layers are found by running the
networks on a few examples, and results are compared with those of separate passes on the first batch of
networks of these shapes: with any difference, even of the last bit, nothing is shared.
"""

import contextlib
import logging
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edge_client.data.dataset import Inputs, LabelledData
from edge_client.models.modes import evaluating
from edge_client.training import epochs, evaluation, memory_format, results
from edge_client.training.optimizers import Optimizer

# Sharpness-aware steps (SAM, Foret et al. 2021): gradients at weights that were moved uphill.


def step_gradients(
    module: nn.Module, optimizer: Optimizer, passes: Callable[[], Tensor], *, radius: float
) -> Tensor:
    """Leave the gradients of a step in the module's parameters; returns the loss at the weights themselves.

    `passes` run forward and backward and return the loss. A radius of 0 makes a plain step.
    """
    optimizer.zero_grad()
    loss = passes()
    if radius:
        moved = [weight for weight in module.parameters() if weight.grad is not None]
        gradients = [weight.grad for weight in moved if weight.grad is not None]
        with uphill(moved, gradients, list(module.buffers()), radius=radius):
            # Also of weights that the optimizer does not have, whose factors it has.
            module.zero_grad()
            optimizer.zero_grad()
            passes()
    return loss


@contextmanager
def restore_after(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Copy the tensors' numbers back after."""
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


@contextmanager
def uphill(
    weights: Sequence[Tensor], gradients: Sequence[Tensor], buffers: Sequence[Tensor], *, radius: float
) -> Iterator[None]:
    """Move the weights by `radius` along their gradients inside; weights and buffers are as before after it.

    Running statistics are those of the weights themselves.
    """
    with restore_after((*weights, *buffers)):
        with torch.no_grad():
            norms = torch.stack([torch.linalg.vector_norm(gradient) for gradient in gradients])
            factor = radius / torch.linalg.vector_norm(norms).clamp_min(epochs.SMALLEST_NORM)
            for weight, gradient in zip(weights, gradients, strict=True):
                weight.add_(gradient * factor)
        yield


log = logging.getLogger(__name__)

Cut = Mapping[str, Mapping[int, NDArray[np.int64]]]  # indices of the whole network's, by parameter and axis

LEARNING = 2  # examples on which the common layers are found
CHANNELS = 1  # the axis of channels in a layer's output
LAYERS = frozenset({functional.conv1d, functional.conv2d, functional.conv3d, functional.linear})
PER_CHANNEL = frozenset(
    {
        *(torch.relu, Tensor.relu, functional.relu, functional.batch_norm),
        *(torch.max_pool1d, torch.max_pool2d, functional.max_pool1d, functional.max_pool2d),
        *(functional.avg_pool1d, functional.avg_pool2d),
    }
)


@dataclass(frozen=True, eq=False)
class _Part:
    """A tensor of the whole network, called `name` in all passes, or its channels `rows`."""

    name: int
    rows: Tensor | None = None
    of: Tensor | None = None


def shared_outputs(
    modules: Sequence[nn.Module],
    cuts: Sequence[Cut],
    batches: Sequence[Tensor],
    compared: set[Hashable] | None = None,
) -> list[Tensor] | None:
    """Each module's outputs [N, classes] for all batches, bit-equal to separate passes.

    The first module is the whole network, the others its sub-models, cut at `cuts`. All are on the CPU, in
    evaluation mode and with the layout of `channels_innermost`. None if nothing can be shared. `compared` are
    the shapes for which results were equal before.
    """
    sharing = _Sharing(modules, cuts)
    if not sharing.learn(batches[0][:LEARNING]):
        return None
    found = [sharing.outputs(batches[0])]
    # Equal shapes are computed by the same kernels.
    weights = (tuple(tensor.shape for tensor in module.state_dict().values()) for module in modules)
    shapes = (tuple(weights), batches[0].shape)
    if compared is None or shapes not in compared:
        alone = [module(batches[0]) for module in modules]
        if not all(torch.equal(one, other) for one, other in zip(alone, found[0], strict=True)):
            return None
        if compared is not None:
            compared.add(shapes)
    for batch in batches[1:]:
        # A batch of another size may be computed by other kernels.
        same = len(batch) == len(batches[0])
        found.append(sharing.outputs(batch) if same else [module(batch) for module in modules])
    return [torch.cat(outputs) for outputs in zip(*found, strict=True)]


@contextlib.contextmanager
def prepare_modules(modules: Sequence[nn.Module], examples: Tensor) -> Iterator[None]:
    """All modules as a forward pass of `examples` wants them: evaluation mode, layout, no gradients."""
    with contextlib.ExitStack() as stack:
        for module in modules:
            stack.enter_context(evaluating(module))
            stack.enter_context(memory_format.channels_innermost(module, examples))
        stack.enter_context(torch.inference_mode())
        yield


class _Sharing(TorchFunctionMode):
    """Keeps what the whole network computes of a batch, and answers the sub-models' calls from it."""

    def __init__(self, modules: Sequence[nn.Module], cuts: Sequence[Cut]) -> None:
        super().__init__()
        self._modules = modules
        self._names: dict[object, int] = {}
        tensors = modules[0].state_dict(keep_vars=True)
        self._parameters = {id(t): _Part(self._name(("parameter", name))) for name, t in tensors.items()}
        for module, cut in zip(modules[1:], cuts, strict=True):
            self._parameters |= self._cut(module, cut)
        self._kept: dict[int, Tensor] = {}
        self._all, self.wanted = False, set[int]()
        self._versions: dict[int, int] = {}

    def learn(self, batch: Tensor) -> bool:
        """Find the calls whose results sub-models can use; returns whether there are any.

        There are none if a network changes such a result afterwards.
        """
        self._all = True
        try:
            # Only outside of inference mode do tensors count their changes.
            with torch.inference_mode(False), torch.no_grad():
                examples = batch.clone()
                for module in self._modules:
                    self._pass(module, examples)
                changed = any(self._kept[n]._version != version for n, version in self._versions.items())
        except Exception as error:
            # Code of a user's own network that computes with tensors in its own ways.
            log.info("nothing is shared: %s", error)
            return False
        finally:
            self._all = False
            self._kept.clear()
        return bool(self.wanted) and not changed

    def outputs(self, batch: Tensor) -> list[Tensor]:
        found = [self._pass(module, batch) for module in self._modules]
        self._kept.clear()
        return found

    def _pass(self, module: nn.Module, batch: Tensor) -> Tensor:
        _mark(batch, _Part(self._name("batch")))
        with self:
            outputs: Tensor = _whole(module(batch))
        return outputs

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        if func in LAYERS or func in PER_CHANNEL:
            part = self._part_of_call(func, args, given)
            if part is not None:
                return self._answer(part, func, args, given)
        return func(*map(_whole, args), **{name: _whole(value) for name, value in given.items()})

    def _part_of_call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Part | None:
        """What a call computes of the whole network; None if it is not part of it."""
        values = [*args, *kwargs.values()]
        # In training, or in place.
        if not args or any(value is True for value in values):
            return None
        parts = [self._part(value) for value in values if isinstance(value, Tensor)]
        if any(part is None for part in parts):
            return None
        known = [part for part in parts if part is not None]
        rows = next((part.rows for part in reversed(known) if part.rows is not None), None)
        inputs = known[:1] if func in LAYERS else []
        # A layer needs all channels of its input; all else has the same channels. Some rows of a product of
        # matrices often differ from the whole product in the last bit.
        if any(part.rows is not None for part in inputs) or (rows is not None and func is functional.linear):
            return None
        for part in known[len(inputs) :]:
            both_whole = part.rows is None and rows is None
            if not both_whole and (part.rows is None or rows is None or not torch.equal(part.rows, rows)):
                return None
        names = tuple(part.name for part in known)
        rest = repr([value for value in values if not isinstance(value, Tensor)])
        return _Part(self._name((func, names, tuple(kwargs), rest)), rows)

    def _answer(self, part: _Part, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        kept = self._kept.get(part.name)
        if kept is not None:
            self.wanted.add(part.name)
            if part.rows is None:
                return kept
            # Only the shape counts until `_whole` is asked for the numbers.
            shape_only = kept.narrow(CHANNELS, 0, len(part.rows))
            return _mark(shape_only, _Part(part.name, part.rows, kept))
        result = func(*map(_whole, args), **{name: _whole(value) for name, value in kwargs.items()})
        if part.rows is not None or not isinstance(result, Tensor):
            return result
        if self._all or part.name in self.wanted:
            self._kept[part.name] = result
            if self._all:
                self._versions[part.name] = result._version
        return _mark(result, part)

    def _part(self, tensor: Tensor) -> _Part | None:
        return self._parameters.get(id(tensor)) or tensor.__dict__.get("_part")

    def _name(self, what: object) -> int:
        return self._names.setdefault(what, len(self._names))

    def _cut(self, module: nn.Module, cut: Cut) -> dict[int, _Part]:
        """The parameters of a sub-model that are the whole network's, or some of their rows."""
        whole = self._modules[0].state_dict(keep_vars=True)
        found = {}
        for name, tensor in module.state_dict(keep_vars=True).items():
            axes = cut.get(name, {})
            if axes.keys() - {0} or name not in whole:
                continue
            rows = torch.from_numpy(axes[0]) if axes else None
            same = whole[name] if rows is None else whole[name].index_select(0, rows)
            if torch.equal(same, tensor):
                found[id(tensor)] = _Part(self._name(("parameter", name)), rows)
        return found


def _mark(tensor: Tensor, part: _Part) -> Tensor:
    tensor.__dict__["_part"] = part
    return tensor


def _whole(value: Any) -> Any:
    """The value itself, with its own numbers where it has only a shape."""
    part = value.__dict__.get("_part") if isinstance(value, Tensor) else None
    if part is None or part.of is None:
        return value
    return part.of.index_select(CHANNELS, part.rows)


WORTH_SHARING = 4  # batches from which layers are shared: the first batch is computed twice


def evaluate_sub_models(
    modules: Sequence[nn.Module],
    cuts: Sequence[Cut],
    data: LabelledData,
    *,
    inputs: Inputs | None = None,
    batch_size: int = 256,
    compared: set[Hashable] | None = None,
) -> list[results.Evaluation]:
    """Evaluate a network, the first of the modules, and sub-models cut from it, as `evaluate` does.

    Layers that they have in common run once, if the results are the same to the bit. All are on the CPU;
    `compared` as in `shared_outputs`.
    """
    given = data.inputs() if inputs is None else inputs
    batches = evaluation.batches_of(torch.from_numpy(np.ascontiguousarray(given)), batch_size)
    if len(modules) > 1 and len(batches) >= WORTH_SHARING:
        with prepare_modules(modules, batches[0]):
            outputs = shared_outputs(modules, cuts, batches, compared)
        if outputs is not None:
            return [evaluation.evaluate_outputs(found, data, given) for found in outputs]
    return [evaluation.evaluate(module, data, inputs=given, batch_size=batch_size) for module in modules]
