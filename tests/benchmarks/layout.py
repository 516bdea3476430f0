"""Training with channels innermost in memory over training in torch's default layout.

Both train the same network on the same generated pictures, an epoch in batches of 32 each in turns, on one
thread; processor time. Measured for full networks and for the smallest sub-model, which weak devices train,
and for evaluations.
"""

import contextlib
import time
from collections.abc import Callable, Iterator
from unittest.mock import patch

import numpy as np
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.surgery import compact
from edge_client.training import evaluation, loop
from edge_client.training.loop import single_thread
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec, Preprocessing
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options

NETWORKS = (
    ("two-nn", (1, 28, 28)),
    ("cnn", (3, 32, 32)),
    ("resnet56", (3, 32, 32)),
    ("mobilenet-v2", (3, 32, 32)),
)
SMALLEST, PICTURES = 0.7, 64
PLAN = TrainingPlan(optimizer="sgd", learning_rate=0.01, batch_size=32, local_epochs=1)


def figures(options: Options) -> list[Figure]:
    """Training of every full network and its tier 1, and evaluation of every full network."""
    pairs = 1 if options.quick else 7
    networks = NETWORKS[:1] if options.quick else NETWORKS
    with single_thread():
        return [figure for name, shape in networks for figure in _of(name, shape, pairs)]


def _of(name: str, shape: tuple[int, ...], pairs: int) -> Iterator[Figure]:
    full, small = _networks(name, shape)
    data = _pictures(shape)
    for what, work in (
        ("full: training", lambda: loop.train(full, data, PLAN)),
        ("tier 1: training", lambda: loop.train(small, data, PLAN)),
        ("full: evaluation", lambda: evaluation.evaluate(full, data)),
    ):
        yield _figure(f"{name}, {what}", _ratios(work, pairs))


def _figure(name: str, ratios: tuple[float, ...]) -> Figure:
    return Figure("layout", f"{name}, channels innermost over as made", "x", ratios)


def _ratios(work: Callable[[], object], pairs: int) -> tuple[float, ...]:
    """Ours over the default layout, in turns; the first pair is not counted."""
    taken = [(_seconds(work), _plain_seconds(work)) for _ in range(pairs + 1)]
    return tuple(ours / plain for ours, plain in taken[1:])


def _plain_seconds(work: Callable[[], object]) -> float:
    as_made = {"channels_innermost": lambda *_, **how: contextlib.nullcontext()}
    with patch.multiple(loop, **as_made), patch.multiple(evaluation, **as_made):
        return _seconds(work)


def _seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def _networks(name: str, shape: tuple[int, ...]) -> tuple[nn.Module, nn.Module]:
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10), seed=0)
    channel_map = trace_channels(module, shape)
    ratios = group_ratios(entry(name), SMALLEST, channel_map)
    return module, compact(module, prefix_spec(ratios, channel_map), channel_map)


def _pictures(shape: tuple[int, ...]) -> LabelledData:
    random = np.random.default_rng(0)
    inputs = random.random((PICTURES, *shape), np.float32)
    return LabelledData(inputs, np.arange(PICTURES) % 10, tuple("0123456789"), Preprocessing())
