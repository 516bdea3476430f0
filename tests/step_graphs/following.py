"""Training without torch in which every step begins from torch's recorded state."""

import contextlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from edge_client.data.local import LocalData
from edge_client.training.results import TrainingStopped
from edge_client.training.step_graphs.running import loop, optimizers, trainer
from edge_client.training.step_graphs.running.arena import StepSession
from edge_client.training.trainer import TrainingJob
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import Preprocessing
from tests.step_graphs.cases import Case, Network, examples, plan, received
from tests.step_graphs.graphs import write
from tests.step_graphs.recorded import Arrays, State, Step

Note = Callable[[Step, Arrays, Arrays], None]
"""Takes a recorded step, the arrays with the running statistics after the graph's run, and its gradients."""


def follow(
    case: Case,
    found: Network,
    graphs: Mapping[str, bytes],
    steps: Sequence[Step],
    note: Note,
    *,
    session: type[Any] = StepSession,
) -> None:
    """Run the graph on each step's state and batch, and tell `note` what came of it.

    The trainer is the project's own, with `session` to run its graphs.
    """
    chosen = plan(case).optimizer
    follower = _Follower(steps, note)
    with (
        patch.object(loop, "OPTIMIZERS", {chosen: lambda _: follower}),
        patch.object(trainer, "StepSession", session),
        contextlib.suppress(TrainingStopped),
    ):
        trained(case, found, graphs, should_stop=lambda: follower.is_done)


def trained(
    case: Case,
    found: Network,
    graphs: Mapping[str, bytes],
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> Arrays:
    """The arrays after the case's training with the graph."""
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
            should_stop=should_stop,
            graphs=write(graphs, Path(folder)),
        )
        delta = trainer.OnnxTrainer(threads=1).train(job).delta
        return {name: found.arrays[name] + delta[name] for name in found.arrays}


def moved(training: TrainingPlan, step: Step, gradients: Arrays) -> State:
    """What the optimizer without torch makes of the step's state with these gradients."""
    optimizer = optimizers.OPTIMIZERS[training.optimizer](training)
    optimizer.steps = step.number - 1
    for kind, arrays in step.before.optimizer.items():
        optimizer.state[kind] = _copies(arrays)
    weights = _copies({name: step.before.arrays[name] for name in gradients})
    optimizer.step(weights, _copies(gradients))
    return State(weights, optimizer.state)


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


class _Follower(optimizers.Optimizer):
    """Replaces the arrays after each run of the graph by those after torch's step."""

    def __init__(self, steps: Sequence[Step], note: Note) -> None:
        self.state, self.steps = {}, 0
        self._recorded, self._note = steps, note

    @property
    def is_done(self) -> bool:
        return self.steps == len(self._recorded)

    def step(self, weights: optimizers.Arrays, gradients: optimizers.Arrays) -> None:
        recorded = self._recorded[self.steps]
        self.steps += 1
        self._note(recorded, weights, gradients)
        for name, array in weights.items():
            np.copyto(array, recorded.after.arrays[name])


def _copies(arrays: Arrays) -> dict[str, NDArray[np.float32]]:
    return {name: np.array(array, np.float32, order="C") for name, array in arrays.items()}
