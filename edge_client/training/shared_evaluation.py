"""Evaluating a network and sub-models cut from it on the same data."""

from collections.abc import Hashable, Sequence

import numpy as np
import torch
from torch import nn

from edge_client.data.dataset import Inputs, LabelledData
from edge_client.training.evaluation import evaluate, judged
from edge_client.training.results import Evaluation
from edge_client.training.shared_forward import Cut, prepared, shared_outputs

WORTH_SHARING = 4
"""Batches from which layers are shared: the first batch is computed twice."""


def evaluate_sub_models(
    modules: Sequence[nn.Module],
    cuts: Sequence[Cut],
    data: LabelledData,
    *,
    inputs: Inputs | None = None,
    batch_size: int = 256,
    compared: set[Hashable] | None = None,
) -> list[Evaluation]:
    """Evaluate a network, the first of the modules, and sub-models cut from it, as `evaluate` does.

    Layers that they have in common run once, if the results are the same to the bit. All are on the CPU;
    `compared` as in `shared_outputs`.
    """
    given = data.inputs() if inputs is None else inputs
    batches = torch.split(torch.from_numpy(np.ascontiguousarray(given)), batch_size)
    if len(modules) > 1 and len(batches) >= WORTH_SHARING:
        with prepared(modules, batches[0]):
            outputs = shared_outputs(modules, cuts, batches, compared)
        if outputs is not None:
            return [judged(found, data, given) for found in outputs]
    return [evaluate(module, data, inputs=given, batch_size=batch_size) for module in modules]
