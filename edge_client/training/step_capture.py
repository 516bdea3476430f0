"""A training step recorded once and played back: the same kernels, without Python and autograd between them.

A step of a small network on a small batch spends much of its time on deciding what to do next. The first step
of a network on a batch of some shape is therefore recorded as the list of kernels that forward and backward
pass have called; the following ones play that list, and the optimizer's step with it where that is plain
descent on the processor (`kernels.py`). No sum is taken in another order, so the bits should be those of the
plain step, and that is not taken on trust: each recording is compared with the plain step, bit by bit, before
it is used, and dropped where they differ. A recording knows nothing of decisions that a network's own code
takes from step to step: only networks made of known parts are recorded, any other is trained plainly.
"""

from __future__ import annotations

import copy
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.training.captured_graph import products, turned_beforehand, with_descent, without_detours
from edge_client.training.optimizers import Descent, Optimizer

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
"""From parameters, buffers, inputs and labels to the loss and the gradients of the parameters.

Given some parameters' momentum too, it moves these, and gives the gradients of the others alone.
"""


@dataclass(frozen=True, eq=False)
class Recording:
    """What to play; which parameters that moves itself, by place; which tensors it is also given turned."""

    play: Play
    moves: Sequence[int]
    turned: Sequence[int]


class Recorder:
    """Keeps the recordings of the networks that a process trains again and again."""

    def __init__(self) -> None:
        self._known: WeakKeyDictionary[nn.Module, dict[Any, Recording | None]] = WeakKeyDictionary()

    def steps(self, module: nn.Module, optimizer: Optimizer, plain: Step) -> Step:
        """Steps like `plain`, which are recorded where they can be; for one training of the module."""
        if not _is_recordable(module):
            return plain
        return _RecordedSteps(self._known.setdefault(module, {}), module, optimizer, plain)


class _RecordedSteps:
    """The steps of one training."""

    def __init__(
        self,
        known: dict[Any, Recording | None],
        module: nn.Module,
        optimizer: Optimizer,
        plain: Step,
    ) -> None:
        self._known, self._module, self._optimizer, self._plain = known, module, optimizer, plain
        self._parameters = list(module.parameters())
        self._tensors = [*self._parameters, *module.buffers()]
        self._descent = optimizer.descent if _is_plain(self._parameters) else None
        self._momentum = self._descent.momentum if self._descent is not None else 0.0
        modes = tuple(part.training for part in module.modules())
        self._kind = (modes, self._descent is not None, self._momentum > 0)
        self._steps: dict[torch.Size, Step] = {}

    def __call__(self, examples: Examples) -> Tensor:
        """One step; plain is that of a training which makes the optimizer's state."""
        step = self._steps.get(examples.inputs.shape)
        if step is None:
            if self._momentum and len(self._optimizer.state) < len(self._parameters):
                return self._plain(examples)
            step = self._steps[examples.inputs.shape] = self._step(examples)
        return step(examples)

    def _step(self, examples: Examples) -> Step:
        """How steps on such a batch are taken in this training."""
        key = (examples.inputs.shape, self._kind)
        if key not in self._known:
            self._known[key] = self._recorded(examples)
        recording = self._known[key]
        if recording is None:
            return self._plain
        return self._advance(recording) if self._descent is None else self._descend(recording, self._descent)

    def _advance(self, recording: Recording) -> Step:
        """The passes are played, and the optimizer goes on from their gradients."""
        given, turned = self._tensors, self._turned(recording)

        def step(examples: Examples) -> Tensor:
            # Two sets of gradients at once would find no room in the caches.
            self._optimizer.zero_grad()
            with torch.no_grad(), _as_recorded():
                loss, *gradients = recording.play(*given, examples.inputs, examples.labels, *turned)
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
            return loss

        return step

    def _descend(self, recording: Recording, descent: Descent) -> Step:
        """A descent is played; those that it does not move are moved by the optimizer's kernel."""
        self._optimizer.zero_grad()
        play, given, moves = recording.play, self._tensors, recording.moves
        places = range(len(self._parameters))
        moved = [self._optimizer.state[place]["momentum_buffer"] for place in places if self._momentum]
        further = [moved[place] for place in moves] + ([descent.momentum, -descent.lr] if moves else [])
        further += self._turned(recording)
        others = [place for place in places if place not in moves]
        parameters = [self._parameters[place].detach() for place in others]
        buffers = [moved[place] for place in others if self._momentum]

        def step(examples: Examples) -> Tensor:
            # Without a thought of autograd: nothing that comes of it is ever differentiated.
            with torch.inference_mode(), _as_recorded():
                loss, *gradients = play(*given, examples.inputs, examples.labels, *further)
                if gradients:
                    descent.step(parameters, gradients, buffers)
            return loss

        return step

    def _turned(self, recording: Recording) -> list[Tensor]:
        return [self._tensors[place].detach().t() for place in recording.turned]

    def _recorded(self, examples: Examples) -> Recording | None:
        """The recording, if one can be made that gives the very bits of the plain step."""
        try:
            with _untouched(self._tensors), torch.no_grad():
                graph = _record(self._module, examples.inputs, examples.labels)
            passes = _compiled(graph, len(self._tensors))
            if not self._gives_the_bits(self._advance(passes), examples, laid_out=True):
                log.info("a recorded step differs from the plain one, which is used instead")
                return None
            moves = products(graph) if self._momentum else []
            if self._descent is None or not moves:
                return passes
            descent = _compiled(with_descent(graph, moves), len(self._tensors), moves)
            step = self._descend(descent, self._descent)
            return descent if self._gives_the_bits(step, examples, laid_out=False) else passes
        except Exception as error:
            # Whatever a network does that cannot be recorded, it can still be trained.
            log.info("steps of this network cannot be recorded: %s", error)
        return None

    def _gives_the_bits(self, step: Step, examples: Examples, *, laid_out: bool) -> bool:
        played, plain = (self._outcome(one, examples, laid_out=laid_out) for one in (step, self._plain))
        return _equal(played, plain)

    def _outcome(self, step: Step, examples: Examples, *, laid_out: bool) -> list[Tensor]:
        """The loss, the gradients if they are laid out, and what a step makes of everything that it changes.

        Afterwards all is as it was, but for the gradients.
        """
        state = self._optimizer.state
        changed = [*self._tensors, *(one for each in state.values() for one in each.values())]
        # What a first step adds to the state goes with the copy that it was added to.
        self._optimizer.state = dict(state)
        try:
            with _untouched(changed):
                loss = step(examples)
                gradients = [one.grad for one in self._parameters if one.grad is not None and laid_out]
                after = [one.detach().clone() for one in changed]
                return [loss, *gradients, *after, torch.get_rng_state()]
        finally:
            self._optimizer.state = state


def _is_plain(parameters: Sequence[Tensor]) -> bool:
    """Of one type, and on the processor: on a GPU one kernel that moves all is shorter than one for each."""
    return not any(one.is_cuda for one in parameters) and len({one.dtype for one in parameters}) == 1


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


def _record(module: nn.Module, inputs: Tensor, labels: Tensor) -> Any:
    """The kernels of both passes as a graph."""
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
    return without_detours(make_fx(passes)(*example))


def _compiled(graph: Any, tensors: int, moves: Sequence[int] = ()) -> Recording:
    """A copy of the graph, to be run by torch's interpreter; `tensors` come first of what it is given."""
    graph = copy.deepcopy(graph)
    turned = turned_beforehand(graph, among=tensors)
    # The interpreter knows no Python from 3.14 on; the kernels in Python are then still the shorter way.
    return Recording(graph if sys.version_info >= (3, 14) else _interpreted(graph), moves, turned)


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
