"""An epoch of training without torch over torch's: `python -m tests.benchmarks step-graphs`.

Both train the same sub-model on the same examples in batches of 32, on one thread, in turns, each with the
allocator of its device. Processor time of the second epoch of each training: the first warms up.
`step-graphs-deep`, which is not part of `make bench`, has the deep networks.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.data.local import LocalData
from edge_client.system.process_memory import keep_freed_memory, return_large_blocks
from edge_client.training.loop import single_thread, train
from edge_client.training.results import EpochReport
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.trainer import TrainingJob
from schemas.strategy import TrainingPlan
from tests.benchmarks.figure import Figure, paired
from tests.benchmarks.options import Options
from tests.step_graphs.cases import Case, network
from tests.step_graphs.following import task_of
from tests.step_graphs.graphs import write_graphs

AREA = "without torch"
NETWORKS = {"mlp": 1280, "two-nn": 320, "cnn": 160, "cnn-group": 160, "cnn-batch": 160}
DEEP = {"mobilenet-v2-quarter": 96, "mobilenet-v2": 96, "resnet56": 64}
"""Examples of an epoch by network."""
TIERS, DEEP_TIERS = (1, 3, 5), (1, 5)
TARGETS = {"mlp": 1.2, "two-nn": 1.2, "cnn": 1.2}
PAIRS = 7
PLAN = TrainingPlan(optimizer="sgd", learning_rate=0.01, batch_size=32, local_epochs=2)

OnEpoch = Callable[[EpochReport], None]


def figures(options: Options) -> list[Figure]:
    """The networks whose graphs are drawn within seconds."""
    return list(_figures(options, NETWORKS, TIERS))


def deep(options: Options) -> list[Figure]:
    """The networks of many layers."""
    return list(_figures(options, DEEP, DEEP_TIERS))


def _figures(options: Options, networks: dict[str, int], tiers: Sequence[int]) -> Iterator[Figure]:
    with single_thread():
        for name, examples in list(networks.items())[: 1 if options.quick else None]:
            for tier in tiers[: 1 if options.quick else None]:
                yield _figure(name, tier, examples, 1 if options.quick else PAIRS)


def _figure(name: str, tier: int, examples: int, pairs: int) -> Figure:
    ratios, seconds = _compared(Case(name, tier), examples, pairs)
    torch, ours = (float(np.median(column)) * 1e3 for column in zip(*seconds, strict=True))
    return Figure(
        AREA,
        f"{name}, tier {tier}: an epoch over torch's",
        "x",
        ratios,
        TARGETS.get(name),
        detail=f"{ours:.0f} ms against {torch:.0f} ms for {examples} examples, processor time",
        reason="tests/step_graphs/README.md, 'Time', says what takes the time",
        raw={"torch_ours_s": seconds},
    )


def _compared(
    case: Case, examples: int, pairs: int
) -> tuple[tuple[float, ...], Sequence[tuple[float, float]]]:
    found = network(case.model, case.tier)
    data = _examples(found.model.input_shape, examples)
    module = found.module()
    with tempfile.TemporaryDirectory() as name:
        job = partial(
            TrainingJob,
            task=task_of(found, PLAN, tier=case.tier),
            plan=PLAN,
            data=LocalData(data, data.subset(range(0))),
            received={"model": found.arrays},
            kept={},
            channel_map=found.channels,
            board=Path("/"),
            should_stop=lambda: False,
            graphs=write_graphs(case, Path(name)),
        )
        trainer = OnnxTrainer(threads=1)

        def with_torch(on_epoch: OnEpoch) -> None:
            keep_freed_memory()
            train(module, data, PLAN, on_epoch=on_epoch)

        def with_graph(on_epoch: OnEpoch) -> None:
            return_large_blocks()
            trainer.train(job(on_epoch=on_epoch))

        return paired(pairs, lambda: _epoch(with_torch), lambda: _epoch(with_graph))


def _epoch(work: Callable[[OnEpoch], Any]) -> float:
    """Processor seconds from the end of the first epoch to that of the second."""
    ends: list[float] = []
    work(lambda _: ends.append(time.process_time()))
    return ends[1] - ends[0]


def _examples(shape: tuple[int, ...], count: int) -> LabelledData:
    random = np.random.default_rng(0)
    return make_labelled_data(random.integers(0, 255, (count, *shape), dtype=np.uint8), np.arange(count) % 10)
