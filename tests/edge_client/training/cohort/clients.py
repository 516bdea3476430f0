"""Training jobs of a few small devices, done together and one by one."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of
from edge_client.training.cohort.jobs import CohortTrainer
from edge_client.training.trainer import Trained, TrainingJob
from schemas.messages import TrainTask
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays, Groups
from schemas.values import ModelSpec, Preprocessing

SHAPES: dict[str, tuple[int, ...]] = {
    "resnet20": (3, 8, 8),
    "resnet20-group": (3, 8, 8),
    "mobilenet-v2-quarter": (3, 32, 32),
}
CLOSE = 2e-5  # largest difference of a weight after a few steps, which the order of sums makes


@cache
def network(model: str) -> tuple[ModelSpec, ChannelMap, Arrays]:
    spec = ModelSpec(name=model, input_shape=SHAPES.get(model, (1, 8, 8)), num_classes=4)
    module = build_model(spec, seed=1)
    return spec, trace_channels(module, spec.input_shape), arrays_of(module)


def plan(*objectives: str | Component, **settings: Any) -> TrainingPlan:
    parts = [Component(name=part) if isinstance(part, str) else part for part in objectives]
    given = {"learning_rate": 0.05, "batch_size": 4, "local_epochs": 2, **settings}
    return TrainingPlan(objectives=tuple(parts), **given)


def jobs(
    model: str,
    training: TrainingPlan,
    counts: Sequence[int] = (9, 12, 6),
    *,
    spec: SubModelSpec | None = None,
    received: Groups | None = None,
    kept: Sequence[Groups] = (),
    held_out: int = 3,
    **of_task: Any,
) -> list[TrainingJob]:
    """A job for each number of examples; seeds and data differ."""
    named, channels, arrays = network(model)
    cut = spec or SubModelSpec()
    given = {"model": extract(arrays, cut, channels), **(received or {})}
    return [
        TrainingJob(
            task=TrainTask(
                federation="home", run="run", round=1, attempt=1, tier=1, ratio=0, model=named, spec=cut,
                training=replace_seed(training, number), blobs={}, **of_task,
            ),
            plan=replace_seed(training, number),
            data=examples(named.input_shape, count, held_out, seed=number),
            received=given,
            kept=kept[number] if kept else {},
            channel_map=channels,
            board=Path("/"),
            on_epoch=lambda _: None,
            should_stop=lambda: False,
        )
        for number, count in enumerate(counts)
    ]  # fmt: skip


def replace_seed(training: TrainingPlan, number: int) -> TrainingPlan:
    return training.model_copy(update={"seed": 10 + number})


def examples(shape: tuple[int, ...], count: int, held_out: int, *, seed: int) -> LocalData:
    rng = np.random.default_rng(seed)
    images = rng.normal(size=(count + held_out, *shape)).astype(np.float32)
    data = LabelledData(images, rng.integers(0, 4, count + held_out), tuple("abcd"), Preprocessing())
    return LocalData(data.subset(range(count)), data.subset(range(count, count + held_out)))


def together(given: Sequence[TrainingJob]) -> list[Trained]:
    """The jobs' results in common steps, with arrays that stay."""
    results = [
        settled(result) for result in CohortTrainer().train_together(given) if isinstance(result, Trained)
    ]
    assert len(results) == len(given), "not all devices trained together"
    return results


def alone(job: TrainingJob) -> Trained:
    return settled(CohortTrainer().train(job))


def settled(trained: Trained) -> Trained:
    return replace(trained, delta={name: np.array(array) for name, array in trained.delta.items()})


def check_equal(ours: Trained, theirs: Trained, *, close: float = CLOSE) -> None:
    """Both results agree but for rounding, and in whatever is counted."""
    check_arrays(ours.delta, theirs.delta, close)
    for mine, other in ((ours.groups, theirs.groups), (ours.kept, theirs.kept)):
        assert mine.keys() == other.keys()
        for group in mine:
            check_arrays(mine[group], other[group], close)
    fixed: dict[str, Any] = {"seconds": 0.0, "train_loss": None, "received_loss": None, "metrics": {}}
    assert ours.metrics.model_copy(update=fixed) == theirs.metrics.model_copy(update=fixed)
    assert ours.metrics.train_loss is not None or not ours.metrics.epochs
    if ours.metrics.epochs:
        np.testing.assert_allclose(ours.metrics.train_loss, theirs.metrics.train_loss, atol=close)


def check_arrays(mine: Arrays, other: Arrays, close: float) -> None:
    assert mine.keys() == other.keys()
    for name in mine:
        np.testing.assert_allclose(mine[name], other[name], atol=close, rtol=close, err_msg=name)
