"""Loss and accuracy of a network on labelled data."""

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.data.dataset import Inputs, LabelledData
from edge_client.models.modes import device_of, evaluating
from edge_client.training.memory_format import channels_innermost
from edge_client.training.results import Evaluation


def evaluate(
    module: nn.Module, data: LabelledData, *, inputs: Inputs | None = None, batch_size: int = 256
) -> Evaluation:
    """Evaluate on all of `data`, with its `inputs` if the caller has them; the module does not change."""
    if len(data) == 0:
        return Evaluation(None, None, 0)
    outputs = _forward(module, data.inputs() if inputs is None else inputs, batch_size)
    labels = torch.from_numpy(data.labels).to(outputs.device)
    loss = float(functional.cross_entropy(outputs, labels))
    correct = int((outputs.argmax(dim=1) == labels).sum())
    return Evaluation(loss if math.isfinite(loss) else None, correct / len(data), len(data))


def logits(module: nn.Module, inputs: Inputs, *, batch_size: int = 256) -> Inputs:
    """Outputs before softmax, [N, classes] float32, for preprocessed inputs [N, C, H, W], N at least 1."""
    outputs: Inputs = _forward(module, inputs, batch_size).float().cpu().numpy()
    return outputs


def _forward(module: nn.Module, inputs: Inputs, batch_size: int) -> Tensor:
    device = device_of(module)
    with channels_innermost(module), evaluating(module), torch.inference_mode():
        parts = torch.split(torch.from_numpy(np.ascontiguousarray(inputs)), batch_size)
        return torch.cat([module(part.to(device)) for part in parts])
