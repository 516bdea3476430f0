"""A training step recorded once and played back: the same kernels, without Python and autograd between them.

A step of a small network on a small batch spends much of its time on deciding what to do next. The first step
of a network on a batch of some shape is therefore recorded as the list of kernels that forward and backward
pass have called; the following ones play that list. Nothing is fused or reordered, so the bits are those of
the plain step, and that is not taken on trust: each recording is compared with the plain step, bit by bit,
before it is used, and dropped where they differ. A recording knows nothing of decisions that a network's own
code takes from step to step: only networks made of known parts are recorded, any other is trained plainly.
"""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.optimizers import Optimizer

log = logging.getLogger(__name__)

KNOWN_PARTS = ("torch.nn.", "torchvision.", "edge_client.models.")
"""Where the classes of recorded networks are defined: their passes decide nothing from step to step."""


class Examples(Protocol):
    """A batch: inputs [B, C, H, W] and labels [B]."""

    @property
    def inputs(self) -> Tensor:
        """What the network is fed."""
        ...

    @property
    def labels(self) -> Tensor:
        """What it should say."""
        ...


Step = Callable[[Any], Tensor]
"""One optimizer step on a batch; returns its mean loss."""

Play = Callable[..., Sequence[Tensor]]
"""From parameters, buffers, inputs and labels to the loss and the gradients of the parameters."""


class Recorder:
    """Keeps the recordings of the networks that a process trains again and again."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[nn.Module, dict[Any, Play | None]] = WeakKeyDictionary()

    def steps(self, module: nn.Module, optimizer: Optimizer, plain: Step) -> Step:
        """Steps like `plain`, which are recorded where they can be; for one training of the module."""
        if not _is_recordable(module):
            return plain
        return _RecordedSteps(self._known.setdefault(module, {}), module, optimizer, plain)


class _RecordedSteps:
    """The steps of one training."""

    def __init__(
        self,
        known: dict[Any, Play | None],
        module: nn.Module,
        optimizer: Optimizer,
        plain: Step,
    ) -> None:
        self._known, self._module, self._plain = known, module, plain
        self._parameters, self._buffers = list(module.parameters()), list(module.buffers())
        self._tensors = [*self._parameters, *self._buffers]
        self._optimizer = optimizer
        self._modes = tuple(part.training for part in module.modules())

    def __call__(self, examples: Examples) -> Tensor:
        """One step; the first one of a shape is a plain one."""
        inputs, labels = examples.inputs, examples.labels
        key = (inputs.shape, self._modes)
        if key not in self._known:
            self._known[key] = self._recorded(inputs, labels)
        play = self._known[key]
        if play is None:
            return self._plain(examples)
        with torch.no_grad(), _as_recorded():
            loss, *gradients = play(*self._tensors, inputs, labels)
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        self._optimizer.step()
        return loss

    def _recorded(self, inputs: Tensor, labels: Tensor) -> Play | None:
        """The recording, if it can be made and gives the very bits of the plain passes."""
        try:
            with _untouched(self._tensors), torch.no_grad():
                play = _record(self._module, inputs, labels)
            with torch.no_grad(), _as_recorded():
                played = self._outcome(lambda: play(*self._tensors, inputs, labels))
            if _equal(played, self._outcome(lambda: _passes(self._module, inputs, labels))):
                return play
            log.info("a recorded step differs from the plain one, which is used instead")
        except Exception as error:
            # Whatever a network does that cannot be recorded, it can still be trained.
            log.info("steps of this network cannot be recorded: %s", error)
        return None

    def _outcome(self, passes: Callable[[], Sequence[Tensor]]) -> list[Tensor]:
        """Loss, gradients, and what has become of buffers and random numbers."""
        with _untouched(self._tensors):
            return [*passes(), *(one.clone() for one in self._buffers), torch.get_rng_state()]


def _as_recorded() -> AbstractContextManager[None]:
    """The interpreter's own optimisations would change bits, and only from its second call on."""
    return torch.jit.optimized_execution(False)  # type: ignore[attr-defined]


def _is_recordable(module: nn.Module) -> bool:
    """Made of known parts, with nothing hooked on."""
    return all(
        type(part).__module__.startswith(KNOWN_PARTS)
        and not (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks)
        for part in module.modules()
    ) and all(parameter.requires_grad for parameter in module.parameters())


@contextmanager
def _untouched(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Whatever happens inside, the tensors and the random numbers are as before."""
    before = [tensor.detach().clone() for tensor in tensors]
    devices = sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)


def _passes(module: nn.Module, inputs: Tensor, labels: Tensor) -> list[Tensor]:
    """Forward and backward pass, plainly: loss and gradients."""
    with torch.enable_grad():
        loss = functional.cross_entropy(module(inputs), labels)
        return [loss.detach(), *torch.autograd.grad(loss, list(module.parameters()))]


def _record(module: nn.Module, inputs: Tensor, labels: Tensor) -> Play:
    """The kernels of both passes as a graph, to be run by torch's interpreter for such."""
    # Large, and wanted only where many steps are taken.
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [name for name, _ in module.named_parameters()]
    buffers = [name for name, _ in module.named_buffers()]

    def passes(*given: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in given[: len(names)]]
            state = dict(zip([*names, *buffers], [*leaves, *given[len(names) : -2]], strict=True))
            outputs = torch.func.functional_call(module, state, (given[-2],))
            loss = functional.cross_entropy(outputs, given[-1])
            return (loss.detach(), *(one.detach() for one in torch.autograd.grad(loss, leaves)))

    example = [one.detach().clone() for one in (*module.parameters(), *module.buffers(), inputs, labels)]
    graph = _without_detours(make_fx(passes)(*example))
    if sys.version_info >= (3, 14):
        # torch's interpreter knows no such Python: the list of kernels in Python is still the shorter way.
        return graph  # type: ignore[no-any-return]
    return _interpreted(graph)


def _without_detours(graph: Any) -> Any:
    """Without what only autograd wanted: detached views, and matrices turned and turned back."""
    aten = torch.ops.aten
    for node in list(graph.graph.nodes):
        if node.target is aten.detach.default:
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
        elif node.target is aten.t.default and node.args[0].target is aten.t.default:
            node.replace_all_uses_with(node.args[0].args[0])
            graph.graph.erase_node(node)
    for node in reversed(list(graph.graph.nodes)):
        if node.target is aten.t.default and not node.users:
            graph.graph.erase_node(node)
    graph.recompile()
    return graph


def _interpreted(graph: Any) -> Play:
    """The same list for torch's own interpreter, which needs no Python from kernel to kernel."""
    for node in graph.graph.nodes:
        # It finds the overload by the types of the arguments, and does not know it by name.
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
    graph.recompile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(graph)  # type: ignore[no-any-return]


def _equal(played: Sequence[Tensor], plain: Sequence[Tensor]) -> bool:
    return len(played) == len(plain) and all(
        one.shape == other.shape and one.stride() == other.stride() and torch.equal(one, other)
        for one, other in zip(played, plain, strict=True)
    )
