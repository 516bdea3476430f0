"""Loss and figures of weights on labelled data, with an inference graph in onnxruntime."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from edge_client.data.dataset import LabelledData
from edge_client.data.tasks.losses import losses_of
from edge_client.models.graphs.filling import opened
from edge_client.training.results import NOTHING, Evaluation
from edge_client.training.step_graphs.running.arena import session_options

BATCH = 16


def evaluate(
    arrays: Mapping[str, NDArray[Any]], graph: Path, data: LabelledData, *, threads: int = 0
) -> Evaluation:
    """Evaluate the network of `graph`, whose weights are inputs, with these arrays on all of `data`."""
    if len(data) == 0:
        return NOTHING
    session = onnxruntime.InferenceSession(
        opened(graph.read_bytes(), arrays, data.input_shape),
        session_options(threads),
        providers=["CPUExecutionProvider"],
    )
    examples, *weights = [value.name for value in session.get_inputs()]
    given = {name: arrays[name] for name in weights}
    loss, total = losses_of(data.learning_task), 0.0
    answers, targets = list[NDArray[Any]](), list[NDArray[Any]]()
    for start in range(0, len(data), BATCH):
        part = data.subset(range(start, min(start + BATCH, len(data))))
        inputs = part.inputs()
        (outputs,) = session.run(None, {**given, examples: inputs})
        answers.append(outputs)
        targets.append(part.targets(inputs))
        total += float(loss(outputs, targets[-1]).sum())
    return Evaluation.of(data, np.concatenate(answers), total / len(data), np.concatenate(targets))
