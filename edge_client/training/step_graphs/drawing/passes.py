"""The two passes of a step as one function of named tensors, ready to be traced."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from edge_client.data.tasks.learning_task import LearningTask
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.models.fixed_state import distinct, sent_tensors
from edge_client.models.modes import evaluating, smallest_batch, start_training
from edge_client.training.evaluation import loss_of
from edge_client.training.step_graphs import names
from edge_client.training.step_graphs.drawing.drawn_objectives import DRAWN, DrawnObjective, Situation
from edge_client.training.step_graphs.drawing.drawn_pools import DrawnPools
from schemas import strategy, submodel

Tensors = Mapping[str, Tensor]


class _Whole(nn.Module):
    """A network with the modules that objectives add to it, so that both have their tensors replaced."""

    def __init__(self, network: nn.Module, added: Sequence[nn.Module]) -> None:
        super().__init__()
        self.network, self.added = network, nn.ModuleList(added)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.network(inputs)
        return outputs


@dataclass(frozen=True, eq=False)
class Passes:
    """A network's step, or its forward pass alone; `run` maps a graph's inputs to its outputs.

    `paths` are the places in `whole` of the tensors by their names in the graph. `trained` have gradients,
    `changed` are the buffers that a step changes, `masks` the shapes of masks without the batch axis, and
    `dropouts` their probabilities. `classes` is the number of outputs, which the loss of `task` compares
    with targets of examples of `example_shape`. A step needs `smallest_batch` examples.
    """

    whole: _Whole
    parts: tuple[DrawnObjective, ...]
    paths: Mapping[str, str]
    trained: tuple[str, ...]
    changed: tuple[str, ...]
    masks: Mapping[str, tuple[int, ...]]
    dropouts: Mapping[str, float]
    classes: int
    trains: bool
    task: LearningTask
    example_shape: tuple[int, ...]
    smallest_batch: int

    def example(self, input_shape: tuple[int, ...], examples: int, *, seed: int = 0) -> dict[str, Tensor]:
        """The graph's inputs for that many random examples, with the network's own numbers."""
        random = torch.Generator().manual_seed(seed)
        state = {**dict(self.whole.named_parameters()), **dict(self.whole.named_buffers())}
        own = {name: path for name, path in self.paths.items() if name not in self.masks}
        given = {name: state[path].detach().clone() for name, path in own.items()}
        given |= {name: tensor for part in self.parts for name, tensor in part.inputs().items()}
        given |= {name: torch.ones(examples, *shape) for name, shape in self.masks.items()}
        given[names.INPUTS] = torch.randn(examples, *input_shape, generator=random)
        if self.trains:
            given[names.LABELS] = self._targets(examples, random)
        return given

    def run(self, given: Tensors) -> dict[str, Tensor]:
        """The outputs by name, in the order of the graph's."""
        if not self.trains:
            with torch.no_grad():
                self._forward(given)
            return self._observations()
        with torch.enable_grad():
            leaves = {name: given[name].detach().requires_grad_() for name in self.trained}
            # A forward pass changes running statistics in place.
            buffers = {name: given[name].clone() for name in self.changed}
            outputs = self._forward({**given, **buffers, **leaves})
            plain = loss = loss_of(self.task.name)(outputs, given[names.LABELS])
            for part in self.parts:
                loss = part.loss(outputs, given, loss)
            gradients = torch.autograd.grad(loss, [*leaves.values()], allow_unused=True)
        found = {names.LOSS: plain.detach()}
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True):
            used = torch.zeros_like(leaf) if gradient is None else gradient
            found[names.GRADIENT + name] = used.detach()
        found |= {names.NEXT + name: buffer.detach() for name, buffer in buffers.items()}
        return found | self._observations()

    def _targets(self, examples: int, random: torch.Generator) -> Tensor:
        if self.task.labels == "classes":
            return torch.randint(self.classes, (examples,), generator=random)
        if self.task.labels == "boxes":
            corners = torch.rand(examples, 2, 2, generator=random) * min(self.example_shape[1:])
            # Of the first class, which there always is.
            boxes = functional.pad(corners.sort(1).values.flatten(1), (1, 0))[:, None]
            pictures = np.zeros((examples, *self.example_shape), np.float32)
            return torch.from_numpy(self.task.targets(pictures, boxes.numpy()))
        return torch.rand(examples, self.classes, generator=random)

    def _forward(self, held: Tensors) -> Tensor:
        state = {path: held[name] for name, path in self.paths.items()}
        with DrawnPools():
            outputs: Tensor = torch.func.functional_call(self.whole, state, (held[names.INPUTS],))
        return outputs

    def _observations(self) -> dict[str, Tensor]:
        found = {name: tensor for part in self.parts for name, tensor in part.observations().items()}
        return {names.OBSERVED + name: tensor for name, tensor in found.items()}


def passes_of(
    module: nn.Module,
    input_shape: tuple[int, ...],
    objectives: Sequence[strategy.Component],
    spec: submodel.SubModelSpec,
    channel_map: submodel.ChannelMap | None,
    *,
    trains: bool,
    task: LearningTask = CLASSIFICATION,
    trained: Collection[str] | None = None,
    example_shape: tuple[int, ...] | None = None,
) -> Passes:
    """The passes of a step of `module`, which does not change; a step trains the arrays `trained`, or all.

    Of a module that takes features, `example_shape` is that of the examples that they are of.
    """
    network = copy.deepcopy(module).cpu().float().eval()
    if trains:
        start_training(network, trained)
    for part in network.modules():
        if isinstance(part, _BatchNorm) and part.momentum is not None:
            # A counter of batches changes nothing where normalisation has a momentum.
            part.num_batches_tracked = None
    masked = mask_dropouts(network) if trains else {}
    masks = mask_shapes(network, masked, input_shape)
    with torch.no_grad():
        classes = int(copy.deepcopy(network).eval()(torch.zeros(2, *input_shape)).shape[1])
    situation = Situation(network, spec, channel_map, classes, trained)
    parts = tuple(
        DRAWN[objective.name](situation, **objective.options)
        for objective in objectives
        if objective.name in DRAWN
    )
    added = {name: part for drawn in parts for name, part in drawn.modules().items()}
    whole = _Whole(network, [*added.values()])
    paths = _paths(network, "network.", "")
    for place, (name, part) in enumerate(added.items()):
        paths |= _paths(part, f"added.{place}.", f"{name}.")
    mask_paths = {names.DROPOUT + name: f"network.{name}.mask" for name in masked}
    paths = {name: path for name, path in paths.items() if path not in mask_paths.values()}
    parameters = dict(whole.named_parameters())
    return Passes(
        whole,
        parts,
        {**paths, **mask_paths},
        trained=tuple(
            n for n, path in paths.items() if path in parameters and parameters[path].requires_grad
        ),
        changed=tuple(
            n for n, path in paths.items() if path not in parameters and (trained is None or n in trained)
        )
        if trains
        else (),
        masks=masks,
        dropouts={names.DROPOUT + name: part.probability for name, part in masked.items()},
        classes=classes,
        trains=trains,
        task=task,
        example_shape=example_shape or input_shape,
        smallest_batch=smallest_batch(network, trained),
    )


def _paths(part: nn.Module, prefix: str, named: str) -> dict[str, str]:
    """Places of the tensors that a module's model has by their names in the graph; others are constants."""
    sent = distinct(sent_tensors(part))
    parameters = dict(part.named_parameters())
    # All parameters come before the first buffer.
    names = [
        *(name for name in sent if name in parameters),
        *(name for name in sent if name not in parameters),
    ]
    return {f"{named}{name}": f"{prefix}{name}" for name in names}


# Dropout with masks that are inputs of the graph, because a graph draws no random numbers.


class Masked(nn.Module):
    """Multiplies its inputs [B, ...] by `mask`, which the graph's caller draws."""

    mask: Tensor

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.register_buffer("mask", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask


def mask_dropouts(network: nn.Module) -> dict[str, Masked]:
    """Replace dropouts in training mode by `Masked`; returns them by name. Those of probability 0 go."""
    found = {
        name: part for name, part in network.named_modules() if isinstance(part, _DropoutNd) and part.training
    }
    masked = {}
    for name, part in found.items():
        owner, _, attribute = name.rpartition(".")
        put: nn.Module = nn.Identity()
        if part.p:
            put = masked[name] = Masked(part.p)
        setattr(network.get_submodule(owner), attribute, put)
    return masked


def mask_shapes(
    network: nn.Module, masked: Mapping[str, Masked], input_shape: tuple[int, ...]
) -> dict[str, tuple[int, ...]]:
    """The shape of each mask without the batch axis, by its name in the graph."""
    shapes: dict[str, tuple[int, ...]] = {}
    hooks = [
        part.register_forward_pre_hook(
            lambda _, given, name=name: shapes.__setitem__(names.DROPOUT + name, tuple(given[0].shape[1:]))
        )
        for name, part in masked.items()
    ]
    try:
        with evaluating(network), torch.no_grad():
            network(torch.zeros(2, *input_shape))
    finally:
        for hook in hooks:
            hook.remove()
    return shapes
