"""Client updates per second of devices that train in common steps, over those of one device at a time.

Both are a worker's work for each client without files and messages: the received weights, the training with
recorded steps where they are one at a time, and the change of all weights. They take turns. On the processor
it is processor time on one thread, so that other processes count little; on a GPU wall time until it is idle.
"""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.models.build import build_model, header_name
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.pruning.surgery import arrays_of
from edge_client.training.cohort.jobs import CohortTrainer
from edge_client.training.feature_cache import FeatureCache, StillPart
from edge_client.training.loop import single_thread
from edge_client.training.step_capture import Recorder
from edge_client.training.trainer import Trained, TrainingJob
from edge_server.simulation.client_work import KEPT_MODULES, PLAIN_STEPS
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec, Preprocessing
from tests.benchmarks.figure import Figure, paired
from tests.benchmarks.options import Options

AREA = "cohorts"


@dataclass(frozen=True)
class SetUp:
    """What each of the clients trains; with `head` the output layer on kept features."""

    model: str
    shape: tuple[int, ...]
    images: int
    epochs: int
    clients: int
    cohort: int
    head: bool = False
    batch: int = 10

    @property
    def name(self) -> str:
        return f"{self.model}{', head' if self.head else ''} on {'x'.join(map(str, self.shape))}"

    @property
    def detail(self) -> str:
        return (
            f"{self.clients} clients of {self.images} examples, {self.epochs} epochs of batch {self.batch}, "
            f"{self.cohort} in a step"
        )


ON_A_PROCESSOR = (
    SetUp("mobilenet-v2-quarter", (3, 32, 32), 60, 3, 100, 100, head=True),
    SetUp("resnet20", (3, 32, 32), 60, 3, 100, 100, head=True),
    SetUp("mlp", (1, 8, 8), 60, 3, 100, 100),
    SetUp("mlp", (1, 28, 28), 60, 3, 50, 50),
    SetUp("two-nn", (1, 28, 28), 20, 1, 20, 10),
    SetUp("cnn", (1, 28, 28), 20, 1, 20, 10),
)
ON_A_GPU = (
    SetUp("mobilenet-v2-quarter", (3, 32, 32), 60, 3, 100, 100, head=True),
    SetUp("mlp", (1, 28, 28), 600, 5, 100, 100),
    SetUp("cnn", (1, 28, 28), 100, 5, 100, 100),  # FashionMNIST's shape
    SetUp("resnet20", (3, 32, 32), 100, 5, 100, 100),
)


def figures(options: Options) -> list[Figure]:
    """A line for each set-up, on one thread."""
    if options.quick:
        return [figure(SetUp("mlp", (1, 4, 4), 6, 1, 2, 2), "cpu", pairs=1)]
    with single_thread():
        return [figure(each, "cpu", pairs=3) for each in ON_A_PROCESSOR]


def on_a_gpu() -> list[Figure]:
    """As `figures`, on the GPU, with the kernels that a worker takes."""
    torch.backends.cudnn.deterministic, torch.backends.cudnn.allow_tf32 = True, False
    return [figure(each, "cuda", pairs=1) for each in ON_A_GPU]


def figure(setup: SetUp, device: str, *, pairs: int) -> Figure:
    with _jobs(setup) as jobs:
        trainers = [
            CohortTrainer(
                sub_models=SubModelCache(KEPT_MODULES, device=device), recorder=Recorder(after=PLAIN_STEPS)
            )
            for _ in range(2)
        ]

        def together() -> float:
            return _seconds(device, lambda: _train_together(trainers[0], jobs, setup.cohort))

        def alone() -> float:
            return _seconds(device, lambda: _train_alone(trainers[1], jobs))

        # Features, recordings, and the kernels that cuDNN chooses.
        together(), alone()
        ratios, taken = paired(pairs, together, alone)
    rates = {
        "together": [setup.clients / mine for mine, _ in taken],
        "alone": [setup.clients / its for _, its in taken],
    }
    said = ", ".join(f"{np.median(each):.3g} {name}" for name, each in rates.items())
    return Figure(
        AREA, f"times as fast in common steps: {setup.name}", "", ratios,
        detail=f"{setup.detail}; client updates per second: {said}", raw=rates,
    )  # fmt: skip


def _train_together(trainer: CohortTrainer, jobs: list[TrainingJob], size: int) -> None:
    for start in range(0, len(jobs), size):
        for result in trainer.train_together(jobs[start : start + size]):
            if not isinstance(result, Trained):
                raise RuntimeError("these devices do not train together") from result
            _read(result)


def _train_alone(trainer: CohortTrainer, jobs: list[TrainingJob]) -> None:
    for job in jobs:
        _read(trainer.train(job))


def _read(result: Trained) -> None:
    for name in result.delta:
        result.delta[name]


def _seconds(device: str, work: Callable[[], None]) -> float:
    clock = time.process_time if device == "cpu" else time.perf_counter
    began = clock()
    work()
    if device == "cuda":
        torch.cuda.synchronize()
    return clock() - began


@contextmanager
def _jobs(setup: SetUp) -> Iterator[list[TrainingJob]]:
    """A job for each client, whose features are kept in a folder as long as the context lasts."""
    model = ModelSpec(name=setup.model, input_shape=setup.shape, num_classes=10)
    module = build_model(model)
    arrays, channels = arrays_of(module), trace_channels(module, setup.shape)
    head = header_name(module, setup.shape)
    trained = tuple(name for name in arrays if name.startswith(f"{head}.")) if setup.head else None
    plan = TrainingPlan(learning_rate=0.05, batch_size=setup.batch, local_epochs=setup.epochs)
    rng = np.random.default_rng(0)
    prepared = Preprocessing(scale=255.0, mean=(0.5,) * setup.shape[0], std=(0.25,) * setup.shape[0])
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for number in range(setup.clients):
            images = rng.integers(0, 256, (setup.images, *setup.shape), dtype=np.uint8)
            data = LabelledData(images, rng.integers(0, 10, setup.images), tuple("0123456789"), prepared)
            seeded = plan.model_copy(update={"seed": number})
            task = TrainTask(
                federation="bench", run="bench", round=1, attempt=1, tier=1, ratio=0, model=model,
                training=seeded, trained=trained, blobs={},
            )  # fmt: skip
            job = TrainingJob(
                task=task, plan=seeded, data=LocalData(data, data.subset(())), received={"model": arrays},
                kept={}, channel_map=channels, board=Path("/"), on_epoch=lambda _: None,
                should_stop=lambda: False,
            )  # fmt: skip
            if trained is not None:
                cache = FeatureCache(Path(folder) / str(number), limit=10**8)
                still = StillPart(frozenset(arrays) - set(trained), "bench", cache, str(number))
                job = replace(job, still=still)
            jobs.append(job)
        yield jobs
