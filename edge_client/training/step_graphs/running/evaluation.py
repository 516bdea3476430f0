"""Loss and figures of weights on labelled data, with an inference graph in onnxruntime."""

from collections.abc import Callable, Mapping
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
    answer = _opened(arrays, graph, data.input_shape, threads)
    loss, total = losses_of(data.learning_task), 0.0
    answers, targets = list[NDArray[Any]](), list[NDArray[Any]]()
    for start in range(0, len(data), BATCH):
        part = data.subset(range(start, min(start + BATCH, len(data))))
        inputs = part.inputs()
        answers.append(answer(inputs))
        targets.append(part.targets(inputs))
        total += float(loss(answers[-1], targets[-1]).sum())
    return Evaluation.of(data, np.concatenate(answers), total / len(data), np.concatenate(targets))


def outputs_of(
    arrays: Mapping[str, NDArray[Any]], graph: Path, inputs: NDArray[Any], *, threads: int = 0
) -> NDArray[Any]:
    """The outputs [N, L] of the network of `graph` with these arrays for inputs [N, ...], N at least 1."""
    answer = _opened(arrays, graph, inputs.shape[1:], threads)
    return np.concatenate([answer(inputs[start : start + BATCH]) for start in range(0, len(inputs), BATCH)])


def _opened(
    arrays: Mapping[str, NDArray[Any]], graph: Path, shape: tuple[int, ...], threads: int
) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """A function from inputs [B, ...] to outputs [B, L]."""
    session = onnxruntime.InferenceSession(
        opened(graph.read_bytes(), arrays, shape),
        session_options(threads),
        providers=["CPUExecutionProvider"],
    )
    examples, *weights = [value.name for value in session.get_inputs()]
    given = {name: arrays[name] for name in weights}

    def answer(inputs: NDArray[Any]) -> NDArray[Any]:
        (outputs,) = session.run(None, {**given, examples: inputs})
        return outputs  # type: ignore[no-any-return]

    return answer
