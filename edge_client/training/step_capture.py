"""Records a training step once and plays its kernels back, without Python and autograd between them.

Small networks on small batches spend much of a step in Python. A step that is repeated on a batch shape is
therefore recorded as the graph of the kernels of both passes; later steps play the graph, with the
optimizer's step if that is a plain descent on the CPU (`captured_graph`). Each recording is compared with the
plain step, bit by bit, and dropped if they differ. A recording cannot follow decisions of a network's own
code: only networks made of known parts are recorded.
"""

import copy
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from edge_client.training.captured_graph import products, turned_beforehand, with_descent, without_detours
from edge_client.training.evaluation import Loss
from edge_client.training.objectives.base import StepNetwork
from edge_client.training.optimizers import Optimizer, fused_sgd
from edge_client.training.shared_forward import restore_after, uphill

log = logging.getLogger(__name__)

KNOWN_PARTS = (
    "torch.nn.",
    "torch.fx.",
    "torchvision.",
    "edge_client.models.",
)  # modules with the same kernels each step


@dataclass(frozen=True, eq=False)
class Examples:
    """Inputs [N, C, H, W], and the loss's targets as labels [N] or [N, L], on the module's device."""

    inputs: Tensor
    labels: Tensor


Step = Callable[[Examples], Tensor]  # one optimizer step on a batch; returns its mean loss

Play = Callable[..., Sequence[Tensor]]
"""From parameters, buffers, inputs and labels to the loss and the gradients of the parameters.

With a descent in the graph, it updates some parameters and returns only the gradients of the others.
"""


@dataclass(frozen=True, eq=False)
class Recording:
    """A graph, the indices of parameters that it updates, and of tensors that it also gets transposed."""

    play: Play
    moves: Sequence[int]
    turned: Sequence[int]


class Recorder:
    """Keeps the recordings of the networks that a process trains repeatedly.

    A step is recorded after so many plain ones of its kind: recording takes what hundreds of steps save.
    """

    def __init__(self, *, after: int = 0) -> None:
        self._after = after
        self.recordings: WeakKeyDictionary[nn.Module, dict[Any, Recording | None]] = WeakKeyDictionary()
        self._plain: WeakKeyDictionary[nn.Module, Counter[Any]] = WeakKeyDictionary()

    def steps(
        self,
        module: nn.Module,
        optimizer: Optimizer,
        plain: Step,
        loss: Loss,
        network: StepNetwork | None = None,
        *,
        radius: float = 0.0,
    ) -> Step:
        """The steps of one training: recorded if possible, else `plain`.

        They run the module, or another `network` over its tensors, and are sharpness-aware with a `radius`.
        """
        if not _is_recordable(module):
            return plain
        known, ran = self.recordings.setdefault(module, {}), self._plain.setdefault(module, Counter())

        def is_due(kind: Any) -> bool:
            if kind in known or ran[kind] == self._after:
                return True
            ran[kind] += 1
            return False

        return RecordedSteps(known, is_due, module, optimizer, plain, loss, network, radius=radius)


class RecordedSteps:
    def __init__(
        self,
        known: dict[Any, Recording | None],
        is_due: Callable[[Any], bool],
        module: nn.Module,
        optimizer: Optimizer,
        plain: Step,
        loss: Loss,
        network: StepNetwork | None,
        *,
        radius: float,
    ) -> None:
        self.recordings, self._is_due, self._plain = known, is_due, plain
        self._module, self._optimizer = module, optimizer
        self._network, self._loss, self._radius = network, loss, radius
        self._parameters = list(module.parameters())
        self._buffers = list(module.buffers())
        self._tensors = [*self._parameters, *self._buffers]
        # A sharpness-aware step needs the gradients before it descends.
        self._descent = optimizer.descent if _is_plain(self._parameters) and not radius else None
        self._momentum = self._descent or 0.0
        modes = tuple(part.training for part in module.modules())
        key = None if network is None else network.key
        self._kind = (modes, self._descent is not None, self._momentum > 0, loss, key, radius > 0)
        self._steps: dict[torch.Size, Step] = {}

    def __call__(self, examples: Examples) -> Tensor:
        """One step, which is plain until the optimizer has its state and recordings pay."""
        step = self._steps.get(examples.inputs.shape)
        if step is None:
            if self._momentum and len(self._optimizer.state) < len(self._parameters):
                return self._plain(examples)
            if not self._is_due((examples.inputs.shape, self._kind)):
                return self._plain(examples)
            step = self._steps[examples.inputs.shape] = self._step(examples)
        return step(examples)

    def _step(self, examples: Examples) -> Step:
        """The step for batches of this shape."""
        key = (examples.inputs.shape, self._kind)
        if key not in self.recordings:
            self.recordings[key] = self._record(examples)
        recording = self.recordings[key]
        if recording is None:
            return self._plain
        return self._advance(recording) if self._descent is None else self._descend(recording)

    def _advance(self, recording: Recording) -> Step:
        """A step that plays both passes and then runs the optimizer."""
        given, turned = self._tensors, self._turn_tensors(recording)

        def step(examples: Examples) -> Tensor:
            # Two sets of gradients would not fit into the caches.
            self._optimizer.zero_grad()
            batch = (examples.inputs, examples.labels)
            with torch.no_grad(), _as_recorded():
                loss, *gradients = recording.play(*given, *batch, *turned)
                if self._radius:
                    with uphill(self._parameters, gradients, self._buffers, radius=self._radius):
                        _, *gradients = recording.play(*given, *batch, *turned)
            for parameter, gradient in zip(self._parameters, gradients, strict=True):
                parameter.grad = gradient
            self._optimizer.step()
            return loss

        return step

    def _descend(self, recording: Recording) -> Step:
        """A step that plays passes and descent; the optimizer's kernel updates the other parameters."""
        self._optimizer.zero_grad()
        play, given, moves = recording.play, self._tensors, recording.moves
        places = range(len(self._parameters))
        moved = [self._optimizer.state[place]["momentum_buffer"] for place in places if self._momentum]
        buffered, turned = [moved[place] for place in moves], self._turn_tensors(recording)
        others = [place for place in places if place not in moves]
        parameters = [self._parameters[place].detach() for place in others]
        buffers = [moved[place] for place in others if self._momentum]

        def step(examples: Examples) -> Tensor:
            rate = self._optimizer.rate
            factors = [self._momentum, -rate] if moves else []
            with torch.inference_mode(), _as_recorded():
                loss, *gradients = play(
                    *given, examples.inputs, examples.labels, *buffered, *factors, *turned
                )
                if gradients:
                    fused_sgd(parameters, gradients, buffers, rate, self._momentum)
            return loss

        return step

    def _turn_tensors(self, recording: Recording) -> list[Tensor]:
        return [self._tensors[place].detach().t() for place in recording.turned]

    def _record(self, examples: Examples) -> Recording | None:
        """A recording with the bits of the plain step; None if there is none."""
        try:
            with _restore_after(self._tensors), torch.no_grad():
                graph = record_passes(self._module, self._network, self._loss, examples)
            passes = compile_graph(graph, len(self._tensors))
            if not self.gives_the_bits(self._advance(passes), examples, laid_out=True):
                log.info("a recorded step differs from the plain one, which is used instead")
                return None
            moves = products(graph) if self._momentum else []
            if self._descent is None or not moves:
                return passes
            descent = compile_graph(with_descent(graph, moves), len(self._tensors), moves)
            same = self.gives_the_bits(self._descend(descent), examples, laid_out=False)
            return descent if same else passes
        except Exception as error:
            # A network that cannot be recorded can still be trained.
            log.info("steps of this network cannot be recorded: %s", error)
        return None

    def gives_the_bits(self, step: Step, examples: Examples, *, laid_out: bool) -> bool:
        played, plain = (self._outcome(tried, examples, laid_out=laid_out) for tried in (step, self._plain))
        return len(played) == len(plain) and all(
            ours.shape == other.shape and ours.stride() == other.stride() and torch.equal(ours, other)
            for ours, other in zip(played, plain, strict=True)
        )

    def _outcome(self, step: Step, examples: Examples, *, laid_out: bool) -> list[Tensor]:
        """The loss, the gradients if stored, and all changed tensors of a step, whose changes are undone."""
        state = self._optimizer.state
        changed = [*self._tensors, *(value for values in state.values() for value in values.values())]
        # A first step adds its state to this copy.
        self._optimizer.state = dict(state)
        try:
            with _restore_after(changed):
                loss = step(examples)
                gradients = [
                    weight.grad for weight in self._parameters if weight.grad is not None and laid_out
                ]
                after = [tensor.detach().clone() for tensor in changed]
                return [loss, *gradients, *after, torch.get_rng_state()]
        finally:
            self._optimizer.state = state


def _is_plain(parameters: Sequence[Tensor]) -> bool:
    """Whether all are of one type and on the CPU; on a GPU one kernel for all parameters is faster."""
    return (
        not any(weight.is_cuda for weight in parameters) and len({weight.dtype for weight in parameters}) == 1
    )


def _as_recorded() -> AbstractContextManager[None]:
    """Switch off the interpreter's optimisations, which change bits from the second call on."""
    return torch.jit.optimized_execution(False)  # type: ignore[attr-defined]


def _is_recordable(module: nn.Module) -> bool:
    """Whether the module is made of known parts without hooks, and trains all parameters."""
    return all(
        type(part).__module__.startswith(KNOWN_PARTS)
        and not (part._forward_hooks or part._forward_pre_hooks or part._backward_hooks)
        for part in module.modules()
    ) and all(parameter.requires_grad for parameter in module.parameters())


@contextmanager
def _restore_after(tensors: Sequence[Tensor]) -> Iterator[None]:
    """Restore the tensors and the random generators after."""
    devices = sorted({tensor.get_device() for tensor in tensors if tensor.is_cuda})
    with restore_after(tensors), torch.random.fork_rng(devices=devices):
        yield


def record_passes(module: nn.Module, network: StepNetwork | None, loss: Loss, examples: Examples) -> Any:
    """The kernels of both passes as a graph."""
    # A large import, needed only by processes that record.
    from torch.fx.experimental.proxy_tensor import make_fx

    names = [name for name, _ in module.named_parameters()]
    buffers = [name for name, _ in module.named_buffers()]

    def run(state: Mapping[str, Tensor], inputs: Tensor) -> Tensor:
        if network is not None:
            return network.outputs(state, inputs)
        outputs: Tensor = torch.func.functional_call(module, dict(state), (inputs,))
        return outputs

    def passes(*given: Tensor) -> tuple[Tensor, ...]:
        with torch.enable_grad():
            leaves = [weight.detach().requires_grad_() for weight in given[: len(names)]]
            state = dict(zip([*names, *buffers], [*leaves, *given[len(names) : -2]], strict=True))
            mean = loss(run(state, given[-2]), given[-1])
            return (mean.detach(), *(gradient.detach() for gradient in torch.autograd.grad(mean, leaves)))

    batch = (examples.inputs, examples.labels)
    example = [given.detach().clone() for given in (*module.parameters(), *module.buffers(), *batch)]
    # With arrays, torch would make a mode of tensors without data for each value that it records.
    traced = make_fx(passes, tracing_mode="fake", _allow_non_fake_inputs=True)
    return without_detours(traced(*example))


def compile_graph(graph: Any, tensors: int, moves: Sequence[int] = ()) -> Recording:
    """A copy of the graph for torch's interpreter; its first inputs are `tensors` parameters and buffers."""
    graph = copy.deepcopy(graph)
    turned = turned_beforehand(graph, among=tensors)
    # torch.jit does not support Python 3.14; the graph in Python is still faster than the plain step.
    return Recording(graph if sys.version_info >= (3, 14) else _script_graph(graph), moves, turned)


def _script_graph(graph: Any) -> Play:
    """The graph for torch's interpreter, which runs no Python between kernels."""
    for node in graph.graph.nodes:
        # The interpreter resolves overloads by the types of the arguments.
        if isinstance(node.target, torch._ops.OpOverload):
            node.target = node.target.overloadpacket
    graph.recompile()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(graph)  # type: ignore[no-any-return]
