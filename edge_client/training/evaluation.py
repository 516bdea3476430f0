"""The losses of learning tasks in torch; loss and figures of a network on labelled data."""

import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.data.dataset import Inputs, LabelledData
from edge_client.data.tasks import detection_loss, registry
from edge_client.data.tasks.learning_task import LearningTask
from edge_client.models import frozen_values, modes
from edge_client.models.frozen_part import SplitNetwork, find_split
from edge_client.system.plugins import Registry
from edge_client.training import results
from edge_client.training.feature_cache import FeatureCache, Places, Rows, features_of_parts, inputs_at
from edge_client.training.memory_format import channels_innermost
from edge_client.training.objectives.registry import build_objectives
from schemas import strategy, submodel
from schemas.tensors.arrays import Groups
from schemas.values import FeatureType, KeptFeatures

Loss = Callable[[Tensor, Tensor], Tensor]  # from outputs [B, L] and targets to the mean loss over the batch


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """The mean square of differences; torch's own has a gradient that cannot be drawn for any batch size."""
    return (outputs - targets).square().mean()


def detection(outputs: Tensor, targets: Tensor) -> Tensor:
    loss: Tensor = detection_loss.losses(outputs, targets, torch).mean()
    return loss


LOSSES: Registry[Loss] = Registry(
    "torch-loss",
    {
        "cross-entropy": functional.cross_entropy,
        "binary-cross-entropy": functional.binary_cross_entropy_with_logits,
        "squared-error": squared_error,
        "detection": detection,
    },
)


def loss_of(task: str) -> Loss:
    return registry.loss_in(LOSSES, registry.learning_task(task))


# The features of examples, which frozen layers make of them: computed once, and kept (`feature_cache`).

log = logging.getLogger(__name__)

AT_ONCE = 8  # frozen passes whose inputs are in memory at once
MAX_BATCH_BYTES = 16 * 1024 * 1024  # of a batch's inputs: the values of a network take up to fifty times more
_said = set[str]()


@dataclass(frozen=True, eq=False)
class Features:
    """The features [N, width] of examples, and the network that takes them in place of inputs.

    `parts` are those of the whole network, if the network behind the features is theirs.
    """

    rest: nn.Module
    rows: Rows
    parts: SplitNetwork | None = None


def why_whole(
    objectives: Sequence[strategy.Component], task: LearningTask, augment: Sequence[str] = ()
) -> str:
    """Why all layers have to run in every step, whichever are frozen; empty if they need not."""
    if task.labels == "none":
        return "the network answers with its inputs"
    if augment:
        return "augmented pictures are new in every epoch"
    built = zip(objectives, build_objectives(objectives), strict=True)
    reading = [component.name for component, objective in built if not objective.reads_outputs_only]
    return f"the objective '{reading[0]}' needs more than outputs" if reading else ""


def why_before(
    parts: SplitNetwork,
    module: nn.Module,
    objectives: Sequence[strategy.Component],
    received: Groups,
    channel_map: submodel.ChannelMap | None,
) -> str:
    """Why objectives need what stands before the features; empty if they do not.

    `received` are the groups of the task, `channel_map` is that of the sub-model `module`.
    """
    for component, objective in zip(objectives, build_objectives(objectives), strict=True):
        if why := objective.why_before(parts, module, received, channel_map):
            return f"the objective '{component.name}' {why}"
    return ""


def split_for(
    module: nn.Module,
    trained: Collection[str] | None,
    input_shape: tuple[int, ...],
    plan: strategy.TrainingPlan,
    data: LabelledData,
    received: Groups | None = None,
    channel_map: submodel.ChannelMap | None = None,
) -> SplitNetwork | None:
    """The module in two parts, of which the rest alone changes; None, said once, if all of it has to run.

    `received` are the groups of the task, `channel_map` is that of the sub-model `module`.
    """
    if trained is None:
        return None
    try:
        if why := why_whole(plan.objectives, data.learning_task, plan.augment):
            raise frozen_values.NoSplit(why)
        parts = find_split(module, trained, input_shape)
        if why := why_before(parts, module, plan.objectives, received or {}, channel_map):
            raise frozen_values.NoSplit(why)
        return parts
    except frozen_values.NoSplit as reason:
        if (text := str(reason)) not in _said:
            _said.add(text)
            log.info("frozen layers run in every step: %s", text)
        return None


def features_of(
    split: SplitNetwork,
    parts: Sequence[LabelledData],
    cache: FeatureCache,
    name: str,
    kind: FeatureType = "fp32",
) -> tuple[list[Features], KeptFeatures]:
    """The features of the examples of each part, computed where the cache lacks them; and what is kept."""
    device = modes.device_of(split.frozen).type
    where = torch.get_num_threads() if device == "cpu" else device
    how = (sorted(split.arrays), split.batch, torch.__version__, where)
    make = partial(_compute, split, parts)
    rows, counts = features_of_parts(cache, name, parts, how, make, width=split.width, kind=kind)
    return [Features(split.rest, each, split) for each in rows], counts


def _compute(split: SplitNetwork, parts: Sequence[LabelledData], places: Places) -> Rows:
    """The features of the examples at these places of all parts together."""
    rows, device = np.empty((len(places), split.width), np.float32), modes.device_of(split.frozen)
    step = AT_ONCE * split.batch
    with channels_innermost(split.frozen, torch.from_numpy(inputs_at(parts, places[:2]))):
        for start in range(0, len(places), step):
            inputs = torch.from_numpy(inputs_at(parts, places[start : start + step])).to(device)
            rows[start : start + step] = split.features(inputs).cpu().numpy()
    return rows


def evaluate(
    module: nn.Module,
    data: LabelledData,
    *,
    inputs: Inputs | None = None,
    features: Features | None = None,
    batch_size: int = 256,
) -> results.Evaluation:
    """Evaluate on all of `data`, with its `inputs` if the caller has them; the module does not change.

    With `features` of the examples only what follows them is run.
    """
    if len(data) == 0:
        return results.NOTHING
    if features is not None:
        return evaluate_outputs(feature_outputs(features, batch_size=batch_size), data, features.rows)
    given = data.inputs() if inputs is None else inputs
    return evaluate_outputs(_forward(module, given, batch_size), data, given)


def evaluate_outputs(outputs: Tensor, data: LabelledData, inputs: Inputs) -> results.Evaluation:
    """Evaluate a network's outputs [N, classes] for all of `data`, whose `inputs` they were computed from."""
    targets = data.targets(inputs)
    loss = float(loss_of(data.task)(outputs, torch.from_numpy(targets).to(outputs.device)))
    return results.Evaluation.of(data, outputs.float().cpu().numpy(), loss, targets)


def feature_outputs(features: Features, *, batch_size: int = 256) -> Tensor:
    """Outputs [N, classes] for examples with these features, N at least 1."""
    return _forward(features.rest, features.rows, batch_size)


def logits(module: nn.Module, inputs: Inputs, *, batch_size: int = 256) -> Inputs:
    """Outputs before softmax, [N, classes] float32, for preprocessed inputs [N, C, H, W], N at least 1."""
    outputs: Inputs = _forward(module, inputs, batch_size).float().cpu().numpy()
    return outputs


def _forward(module: nn.Module, inputs: Inputs, batch_size: int) -> Tensor:
    device = modes.device_of(module)
    examples = torch.from_numpy(np.ascontiguousarray(inputs))
    with modes.evaluating(module), channels_innermost(module, examples), torch.inference_mode():
        parts = batches_of(examples, batch_size)
        return torch.cat([module(part.to(device)) for part in parts])


def batches_of(examples: Tensor, most: int) -> Sequence[Tensor]:
    """Examples [N, ...] in batches of at most this many and `MAX_BATCH_BYTES`, but of one at least."""
    each = examples[0].nbytes
    return torch.split(examples, max(1, min(most, MAX_BATCH_BYTES // each)))
