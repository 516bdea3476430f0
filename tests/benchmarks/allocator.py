"""Training on a device, whose allocator keeps freed memory, over training with the C library's defaults.

Networks whose steps need much memory gain most: the kernel clears memory that was given back again at every
step. `device_training` describes the measurement.
"""

from functools import partial

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.models.build import build_model
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec, Preprocessing
from tests.benchmarks.device_training import Epoch, device_over_plain
from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options

NETWORKS = {
    "two-nn, 28x28": ("two-nn", (1, 28, 28)),
    "resnet56, 32x32": ("resnet56", (3, 32, 32)),
    "mobilenet-v2, 96x96": ("mobilenet-v2", (3, 96, 96)),
}
BATCHES = 3
PLAN = TrainingPlan(optimizer="sgd", learning_rate=0.01, batch_size=32, local_epochs=1)


def figures(options: Options) -> list[Figure]:
    """Measure an epoch of a few batches of every network, device and plain process in turns."""
    pairs = 1 if options.quick else 7
    networks = dict(list(NETWORKS.items())[: 1 if options.quick else None])
    return [
        Figure(
            "allocator",
            f"{name}: training, memory kept over given back",
            "x",
            device_over_plain(partial(_epoch_of, *network), pairs=pairs),
        )
        for name, network in networks.items()
    ]


def _epoch_of(name: str, shape: tuple[int, ...]) -> Epoch:
    """Return a function that trains one epoch on generated pictures."""
    random, count = np.random.default_rng(0), BATCHES * PLAN.batch_size
    pictures = random.random((count, *shape), np.float32)
    data = LabelledData(pictures, np.arange(count) % 10, tuple("0123456789"), Preprocessing())
    module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=10), seed=0)
    return partial(train, module, data, PLAN)
