"""Loss and accuracy of weights on labelled data, with an inference graph in onnxruntime."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.models.graphs.filling import opened
from edge_client.training.results import Evaluation
from edge_client.training.step_graphs.running.arena import session_options

BATCH = 16


def evaluate(
    arrays: Mapping[str, NDArray[Any]], graph: Path, data: LabelledData, *, threads: int = 0
) -> Evaluation:
    """Evaluate the network of `graph`, whose weights are inputs, with these arrays on all of `data`."""
    if len(data) == 0:
        return Evaluation(None, None, 0)
    session = onnxruntime.InferenceSession(
        opened(graph.read_bytes(), arrays, data.input_shape),
        session_options(threads),
        providers=["CPUExecutionProvider"],
    )
    examples, *weights = [value.name for value in session.get_inputs()]
    given = {name: arrays[name] for name in weights}
    total, correct = 0.0, 0
    for start in range(0, len(data), BATCH):
        part = data.subset(range(start, min(start + BATCH, len(data))))
        (outputs,) = session.run(None, {**given, examples: part.inputs()})
        total += float(_cross_entropy(outputs, part.labels).sum())
        correct += int((outputs.argmax(1) == part.labels).sum())
    loss = total / len(data)
    return Evaluation(loss if math.isfinite(loss) else None, correct / len(data), len(data))


def _cross_entropy(outputs: NDArray[np.float32], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The loss of each example [N] from outputs [N, classes]."""
    shifted = outputs.astype(np.float64) - outputs.max(1, keepdims=True)
    logs: NDArray[np.float64] = np.log(np.exp(shifted).sum(1)) - shifted[np.arange(len(labels)), labels]
    return logs
