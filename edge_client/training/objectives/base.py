"""The interface of local objectives, which change the loss, inputs or gradients, or observe a training.

Each objective is one class in its own file and one entry in the registry; plain SGD has none.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from edge_client.data.tasks.learning_task import LabelKind
from edge_client.system.lazy_torch import Tensor, nn, torch
from edge_client.training.objectives.formulas import Objective
from schemas.errors import ConfigError, InvariantError
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Array, Arrays, Groups

# Arguments of objectives: numbers, trained parameters, and the arrays that groups hold under their names.


def checked_factor(objective: str, option: str, value: float) -> float:
    """An option that is a finite number of at least 0; `ConfigError` otherwise."""
    if not (isinstance(value, int | float) and 0 <= value < math.inf):
        raise ConfigError(f"objective '{objective}': {option} must be a number of at least 0, got {value!r}")
    return value


def trained_parameters(module: "nn.Module") -> dict[str, "nn.Parameter"]:
    return {name: weight for name, weight in module.named_parameters() if weight.requires_grad}


def tensor_for(arrays: Arrays, name: str, weight: "Tensor") -> "Tensor":
    """A group's array for a parameter, on its device, or zeros; raises `InvariantError` for another shape."""
    if name not in arrays:
        return torch.zeros_like(weight, requires_grad=False)
    array = arrays[name]
    if array.shape != tuple(weight.shape):
        raise InvariantError(f"{name!r}: expected shape {tuple(weight.shape)}, got {array.shape}")
    return torch.from_numpy(np.array(array)).to(weight.device, weight.dtype)


def array_of(tensor: "Tensor") -> Array:
    """A copy as a float32 array."""
    return np.array(tensor.detach().to("cpu", torch.float32).numpy())


if TYPE_CHECKING:
    from edge_client.models.frozen_part import SplitNetwork

Run = Callable[["Tensor"], "Tensor"]  # from inputs [B, C, H, W] to outputs [B, classes]


@dataclass(frozen=True, eq=False)
class StepNetwork:
    """A network over a module's tensors: `outputs` is a pure function of them, by name, and the inputs.

    Networks of one module with the same `key` are the same.
    """

    key: Hashable
    outputs: Callable[[Mapping[str, "Tensor"], "Tensor"], "Tensor"]


@dataclass(frozen=True, eq=False)
class Batch:
    """One forward pass: the module in training, inputs [B, C, H, W], targets as labels [B] or [B, L], outputs
    [B, L].
    """

    module: "nn.Module"
    inputs: "Tensor"
    labels: "Tensor"
    outputs: "Tensor"


Tensors = Mapping[str, "Tensor"]


@dataclass(frozen=True, eq=False)
class BatchLoss:
    """A forward pass of one of several devices that train together, with outputs [B, L].

    `mean(loss, outputs)` is the mean of a loss of outputs and the batch's targets over its examples: the last
    rows of a batch may be there only because other devices have larger ones.
    """

    outputs: "Tensor"
    mean: Callable[[Callable[["Tensor", "Tensor"], "Tensor"], "Tensor"], "Tensor"]


def _same_loss(weights: Tensors, own: Tensors, batch: BatchLoss, base: "Tensor") -> "Tensor":
    return base


@dataclass(frozen=True, eq=False)
class StepPart:
    """What an objective does in a step, in pure functions, so that one step can be that of several devices.

    `own` are the device's tensors that it reads: same names and shapes on every device of the same plan.
    `loss` extends the loss so far, given the trained parameters by name, and `correct` gives the gradients
    that it changes. `advance` takes note of a step, and computes with no tensor. `extra` is a module that is
    trained too, and `values` what to add up over an epoch's examples, by name as [B, ...], read after a
    forward pass; `take` gets the sums of the last epoch and the number of examples in them.
    """

    own: Tensors = field(default_factory=dict)
    loss: Callable[[Tensors, Tensors, BatchLoss, "Tensor"], "Tensor"] = _same_loss
    correct: Callable[[Tensors, Tensors], Tensors] | None = None
    advance: Callable[[], None] | None = None
    extra: "nn.Module | None" = None
    values: Callable[[], Tensors] | None = None
    take: Callable[[Tensors, int], None] | None = None


@dataclass(frozen=True, eq=False)
class TrainingContext:
    """The inputs of an objective at the start of a training.

    `received` are the groups of the task, `kept` those kept after this device's last counted round; arrays
    under a parameter's name have its shape in the sub-model. `steps` is the plan's number of optimizer steps;
    `inputs` [N, C, H, W] and `labels` [N] or [N, L] are the local examples on the module's device. `spec` is
    the sub-model, `channel_map` the full network's, if it is known. With the `parts` of a
    network the inputs are features, and what follows these runs in each step.
    """

    plan: TrainingPlan
    received: Groups = field(default_factory=dict)
    kept: Groups = field(default_factory=dict)
    steps: int = 0
    inputs: "Tensor" = field(default_factory=lambda: torch.zeros(0))
    labels: "Tensor" = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    spec: SubModelSpec = field(default_factory=SubModelSpec)
    channel_map: ChannelMap | None = None
    parts: "SplitNetwork | None" = None


class LocalObjective(Objective, Protocol):
    """One algorithm's part in local training. By default every method does nothing.

    The order of calls is `setup`; `start_epoch` per epoch; `prepare`, `network`, `loss`, `correct`,
    `after_step` per batch; `finish` and `keep`; and always `close`, also after errors. `state` may be read
    between two epochs, and `resume` restores it after a `setup` in another process.

    `reads_outputs_only`: it takes outputs, labels and weights, no inputs and nothing between layers but what
    `why_before` finds behind the features, so that frozen layers need not run in every step.

    `receives` and `sends` name its groups in tasks and updates, `optimizers` the local optimizers and
    `labels` the kinds of labels that it works with (empty: any). An objective that `measures` takes part in
    the run's last round alone, in which devices run their data through the model without training. One that
    `sums` takes part in rounds in which nothing is trained, and passes the data through the model itself.
    What one that `bounds_examples` sends is a sum over examples, each bounded by its option `clip`.
    One that `starts_elsewhere` may change the weights before the first step.
    """

    receives: ClassVar[frozenset[str]] = frozenset()
    sends: ClassVar[frozenset[str]] = frozenset()
    optimizers: ClassVar[frozenset[str]] = frozenset()
    labels: ClassVar[frozenset[LabelKind]] = frozenset()
    measures: ClassVar[bool] = False
    bounds_examples: ClassVar[bool] = False
    reads_outputs_only: ClassVar[bool] = False
    sums: ClassVar[bool] = False
    starts_elsewhere: ClassVar[bool] = False

    def step_part(self, outputs: int) -> StepPart | None:
        """The objective's part in the steps of devices that train together, after `setup`; None: it has none.

        `outputs` is the number of the network's outputs. The device's module is then only set up and read.
        """
        return None

    def setup(self, module: "nn.Module", context: TrainingContext) -> Iterable["nn.Parameter"]:
        """Attach to the module, which has the received weights; returns further parameters to train."""
        return ()

    def why_before(
        self, parts: "SplitNetwork", module: "nn.Module", received: Groups, channel_map: ChannelMap | None
    ) -> str:
        """Why it needs what stands before the features of `parts`; empty if it does not.

        `received` are the groups of the task, `channel_map` is that of the sub-model `module`.
        """
        return ""

    def prepare(self, inputs: "Tensor") -> "Tensor":
        """Change the inputs; called before each forward pass."""
        return inputs

    def network(self, module: "nn.Module", run: Run) -> Run:
        """The network to run in this step, `run` if not another; the step's optimizer trains `module`."""
        return run

    def switches(self) -> bool:
        """Whether all that the objective does is to choose each step's network, by `choose_network`."""
        return False

    def choose_network(self) -> StepNetwork | None:
        """The next step's network; None for the module itself."""
        return None

    def share(self) -> float:
        """The share of the module's channels that the next step's network has."""
        return 1.0

    def loss(self, batch: Batch, base: "Tensor") -> "Tensor":
        """Extend the scalar loss so far; called after each forward pass."""
        return base

    def correct(self) -> None:
        """Change the module's gradients before the optimizer's step."""

    def after_step(self) -> None:
        """Take note that the optimizer has changed the weights."""

    def close(self) -> None:
        """Detach from the module, which must be as before `setup`."""
