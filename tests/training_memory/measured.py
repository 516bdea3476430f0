"""Measured memory of training: the growth of a process that trains two rounds.

The processes are forks of a process that has imported everything and computed nothing. Each sets up its
allocator as a device does, and first trains the same network on four examples, so that kernels are loaded;
then it returns free memory and resets its peak. A second round finds the memory of the first fragmented, and
may need more; a third rarely does.
"""

import ctypes
import gc
import json
import os
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.tasks.labels import in_task
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.index_sets import extract
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.pruning.surgery import arrays_of
from edge_client.system.process_memory import keep_freed_memory
from edge_client.training.cost_model import network_cost
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec
from tests.benchmarks.resident import forget_peak, peak_rss, rss

RATIOS = (0.7, 0.5, 0.3, 0.1, 0.0)
GREY, COLOUR, PHOTO = (1, 28, 28), (3, 32, 32), (3, 64, 64)
DETECTOR = "detector:mobilenet-v2"
SHAPES = {
    "two-nn": GREY,
    "mlp": GREY,
    "cnn": COLOUR,
    "cnn-batch": COLOUR,
    "cnn-group": COLOUR,
    "resnet20": COLOUR,
    "resnet20-group": COLOUR,
    "resnet56": COLOUR,
    "mobilenet-v2": COLOUR,
    "mobilenet-v2-quarter": COLOUR,
    "vit-tiny": GREY,
    DETECTOR: PHOTO,
}
OPTIMIZERS: dict[str, dict[str, object]] = {
    "sgd": {},
    "momentum": {"momentum": 0.9},
    "adam": {"optimizer": "adam", "learning_rate": 0.001},
}
EXAMPLES = 160
ROUNDS = 2


@dataclass(frozen=True)
class Case:
    """A training to measure."""

    model: str
    tier: int
    optimizer: str = "sgd"
    batch: int = 32


@dataclass(frozen=True)
class Growth:
    """Bytes of one training, predicted and measured as growth of the process; MACs of one example."""

    case: Case
    predicted: int
    measured: int
    macs: int

    @property
    def ratio(self) -> float:
        """Predicted over measured bytes."""
        return self.predicted / self.measured


def every_case() -> list[Case]:
    """Every shipped network at every tier with every kind of optimizer; more batch sizes with plain SGD."""
    tiers = range(1, len(RATIOS) + 1)
    usual = [Case(model, tier, kind) for model in SHAPES for tier in tiers for kind in OPTIMIZERS]
    return usual + [
        Case(model, tier, batch=batch) for model in SHAPES for tier in (1, 5) for batch in (8, 64)
    ]


def grown(case: Case) -> Growth:
    """Train in a fork of this process; call it before anything is computed here."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        failed = 1
        try:
            reported = asdict(_measured(case))
            os.write(writing, json.dumps(reported).encode())
            failed = 0
        finally:
            os._exit(failed)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        output = pipe.read()
    _, status = os.waitpid(child, 0)
    if status or not output:
        raise RuntimeError(f"{case} could not be measured")
    return Growth(**{**json.loads(output), "case": case})


def _measured(case: Case) -> Growth:
    torch.set_num_threads(1)
    keep_freed_memory()
    task = "detection" if case.model == DETECTOR else "classification"
    model = ModelSpec(name=case.model, input_shape=SHAPES[case.model], num_classes=10, task=task)
    whole = build_model(model)
    channels = trace_channels(whole, model.input_shape)
    spec = prefix_spec(group_ratios(entry(case.model), RATIOS[case.tier - 1], channels), channels)
    cut = extract(arrays_of(whole), spec, channels)
    params = {name: np.array(cut[name]) for name in cut}
    del whole, cut

    def plan(batch: int) -> TrainingPlan:
        settings: dict[str, Any] = {"learning_rate": 0.01, "batch_size": batch, **OPTIMIZERS[case.optimizer]}
        return TrainingPlan(**settings)

    train(SubModelCache().get(model, spec, channels, params), _examples(model, 4), plan(2))
    gc.collect()
    # Memory that was freed but not given back would hide the same amount of growth.
    ctypes.CDLL(None).malloc_trim(0)
    forget_peak()
    before = rss() or 0
    sub_models, data = SubModelCache(), _examples(model, EXAMPLES)
    for _ in range(ROUNDS):
        module = sub_models.get(model, spec, channels, params)
        train(module, data, plan(case.batch))
    measured = (peak_rss() or 0) - before
    cost = network_cost(module, model.input_shape)
    return Growth(case, cost.training(plan(case.batch), examples=EXAMPLES).total, measured, cost.macs)


def _examples(model: ModelSpec, count: int) -> LabelledData:
    # Created in their final type: a conversion from another type would be measured too.
    rng = np.random.default_rng(0)
    images, classes = rng.integers(0, 255, (count, *model.input_shape), dtype=np.uint8), np.arange(count) % 10
    if model.task != "detection":
        return make_labelled_data(images, classes)
    boxes = np.column_stack([classes, np.tile([16, 16, 48, 48], (count, 1))])[:, None].astype(np.float32)
    return in_task(make_labelled_data(images, boxes), model.task, ())
