"""Loss and figures of a network on labelled data."""

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.data.dataset import Inputs, LabelledData
from edge_client.models.modes import device_of, evaluating
from edge_client.training import losses, results
from edge_client.training.features import Features
from edge_client.training.memory_format import channels_innermost


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
    loss = float(losses.loss_of(data.task)(outputs, torch.from_numpy(targets).to(outputs.device)))
    return results.Evaluation.of(data, outputs.float().cpu().numpy(), loss, targets)


def feature_outputs(features: Features, *, batch_size: int = 256) -> Tensor:
    """Outputs [N, classes] for examples with these features, N at least 1."""
    return _forward(features.rest, features.rows, batch_size)


def logits(module: nn.Module, inputs: Inputs, *, batch_size: int = 256) -> Inputs:
    """Outputs before softmax, [N, classes] float32, for preprocessed inputs [N, C, H, W], N at least 1."""
    outputs: Inputs = _forward(module, inputs, batch_size).float().cpu().numpy()
    return outputs


def _forward(module: nn.Module, inputs: Inputs, batch_size: int) -> Tensor:
    device = device_of(module)
    examples = torch.from_numpy(np.ascontiguousarray(inputs))
    with evaluating(module), channels_innermost(module, examples), torch.inference_mode():
        parts = torch.split(examples, batch_size)
        return torch.cat([module(part.to(device)) for part in parts])
