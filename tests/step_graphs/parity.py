"""Parameters after `STEPS` steps in onnxruntime and in torch, from the same start on the same batches."""

import math
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from edge_client.data.local import LocalData
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.trainer import TrainingJob
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import Preprocessing
from tests.step_graphs.cases import Case, Network, examples, network, plan, received
from tests.step_graphs.graphs import write_graphs

Arrays = Mapping[str, NDArray[Any]]
LIMIT = 1e-5
"""Largest norm of the difference, relative to the norm of the parameters and running statistics."""
ROUNDING = 1e-7
"""Relative disturbance of the start with which torch is compared with itself."""
DISTURBED = 3
"""Number of disturbed starts."""
SPREAD = 3.0
"""How many times torch's own difference counts as the same."""


@dataclass(frozen=True)
class Difference:
    """Relative norms of differences from torch's result.

    `graph` is the step graph's, `rounding` the largest of torch itself from starts that differ by rounding.
    """

    case: Case
    graph: float
    rounding: float

    @property
    def is_explained(self) -> bool:
        """Whether the graph is within `LIMIT`, or differs no more than torch from itself, within a factor."""
        return self.graph <= max(LIMIT, SPREAD * self.rounding)


def compared(case: Case) -> Difference:
    """Train the case with both."""
    torch.set_num_threads(1)
    found = network(case.model, case.tier)
    expected = _with_torch(case, found)
    ours = _with_graph(case, found)
    rounding = max(
        relative(_with_torch(case, replace(found, arrays=_disturbed(found.arrays, seed))), expected)
        for seed in range(DISTURBED)
    )
    return Difference(case, relative(ours, expected), rounding)


def relative(ours: Arrays, expected: Arrays) -> float:
    """The norm of the difference over the norm of `expected`, of all arrays together."""
    difference = sum(float(np.sum((ours[n].astype(np.float64) - a) ** 2)) for n, a in expected.items())
    size = sum(float(np.sum(array.astype(np.float64) ** 2)) for array in expected.values())
    return math.sqrt(difference / size) if size else math.sqrt(difference)


def _with_torch(case: Case, found: Network) -> Arrays:
    module = found.module()
    given, kept = received(case, found)
    train(
        module,
        examples(found.model.input_shape),
        plan(case),
        received=given,
        kept=kept,
        spec=found.spec,
        channel_map=found.channels,
    )
    return arrays_of(module)


def _with_graph(case: Case, found: Network) -> Arrays:
    given, kept = received(case, found)
    data = examples(found.model.input_shape)
    with tempfile.TemporaryDirectory() as folder:
        job = TrainingJob(
            task=task_of(found, plan(case), tier=case.tier),
            plan=plan(case),
            data=LocalData(data, data.subset(range(0))),
            received=given,
            kept=kept,
            channel_map=found.channels,
            board=Path("/"),
            on_epoch=lambda _: None,
            should_stop=lambda: False,
            graphs=write_graphs(case, Path(folder)),
        )
        delta = OnnxTrainer(threads=1).train(job).delta
        return {name: found.arrays[name] + delta[name] for name in found.arrays}


def task_of(found: Network, training: TrainingPlan, *, tier: int = 1) -> TrainTask:
    """A task of the network without blobs."""
    return TrainTask(
        federation="parity",
        run="parity",
        round=2,
        attempt=1,
        tier=tier,
        ratio=0.0,
        model=found.model,
        preprocessing=Preprocessing(),
        spec=found.spec,
        training=training,
        blobs={},
    )


def _disturbed(arrays: Arrays, seed: int) -> dict[str, NDArray[Any]]:
    random = np.random.default_rng(seed)
    return {
        name: (array * (1 + ROUNDING * random.standard_normal(array.shape))).astype(array.dtype)
        for name, array in arrays.items()
    }
