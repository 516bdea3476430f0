"""Client updates per second on a GPU: pfl-research's benchmark set-up.

1,000 clients of 50 CIFAR-10-shaped random images (their content does not matter), 50 clients per round, one
epoch of batch 10, the CNN of 1.6 million parameters. The same work is measured three times, in turns, on one
device in one run: a plain torch loop, the work of a simulation worker for each client (recorded steps; no
files and no messages), and pfl-research itself, if `pfl` can be imported. Each cohort ends with the sum of
its updates on the device. Then devices that train in common steps are compared with one at a time
(`cohorts.py`), and a board's training with that on its processor. Without CUDA nothing is measured, except in
a quick run, which only checks on the CPU, at a tiny size, that the benchmark works.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.data.dataset import LabelledData
from edge_client.training.loop import train
from edge_client.training.step_capture import Recorder
from edge_client.training.training_device import TrainingDevice
from schemas.strategy import TrainingPlan
from schemas.values import Preprocessing
from tests.benchmarks import cohorts
from tests.benchmarks.figure import Figure, paired
from tests.benchmarks.options import Options

AREA = "gpu"
NAMES = tuple("0123456789")
RATE, BATCH, IMAGES = 0.1, 10, 50
BOARDS_IMAGES = 1000  # of a board that trains by itself, in batches of 32
OVER_PROCESSOR = "times faster than the board's processor"


@dataclass(frozen=True, eq=False)
class Setting:
    """The device, the numbers of clients, clients per cohort, cohorts per measurement, and pairs."""

    device: str
    clients: int
    cohort: int
    cohorts: int
    pairs: int

    @property
    def updates(self) -> int:
        """Client updates per measurement."""
        return self.cohort * self.cohorts


def figures(options: Options) -> list[Figure]:
    """Updates per second, and ours over both others."""
    name = "client updates per second"
    if options.quick:
        setting = Setting("cpu", 4, 2, 1, 1)
    elif torch.cuda.is_available():
        setting = Setting("cuda", 1000, 50, 4, 5)
    else:
        why = "torch finds no CUDA device here"
        return [Figure(AREA, name, "1/s", (), reason=why), Figure(AREA, OVER_PROCESSOR, "", (), reason=why)]
    clients = examples(setting.clients)
    ours, plain = recorded_updates(setting, clients), plain_updates(setting, clients)
    ours()
    ratios, taken = paired(setting.pairs, ours, plain)
    rates = tuple(setting.updates / mine for mine, _ in taken)
    where = (
        torch.cuda.get_device_name()
        if setting.device == "cuda"
        else "the processor, at a size without meaning"
    )
    return [
        Figure(AREA, name, "1/s", rates, detail=f"one process, recorded steps, on {where}"),
        Figure(AREA, "times faster than a plain torch loop", "", ratios, detail="the same work, one process"),
        over_pfl(setting, clients, ours),
        over_processor(setting),
        *(cohorts.on_a_gpu() if setting.device == "cuda" else ()),
    ]


def over_processor(setting: Setting) -> Figure:
    """A board's training on the device over that on its processor, with all cores."""
    (data,) = examples(1, IMAGES if setting.device == "cpu" else BOARDS_IMAGES)
    on_device, on_processor = (_training(data, device) for device in (setting.device, "cpu"))
    on_device()
    ratios, taken = paired(setting.pairs, on_device, on_processor)
    return Figure(AREA, OVER_PROCESSOR, "", ratios, detail="the same CNN, batch 32", raw={"seconds": taken})


def _training(data: LabelledData, device: str) -> Callable[[], float]:
    TrainingDevice(device).repeat_bits()
    plan = TrainingPlan(learning_rate=RATE, batch_size=32, local_epochs=1)

    def seconds() -> float:
        module = network().to(device)
        _wait(device)
        began = time.perf_counter()
        train(module, data, plan)
        _wait(device)
        return time.perf_counter() - began

    return seconds


def over_pfl(setting: Setting, clients: list[LabelledData], ours: Callable[[], float]) -> Figure:
    """Ours over pfl-research, if it is installed."""
    name = "times faster than pfl-research"
    if find_spec("pfl") is None:
        reason = (
            "pfl is not installed here: pip install 'pfl[pytorch]'; its pinned versions conflict with ours"
        )
        return Figure(AREA, name, "", (), reason=reason)
    from importlib.metadata import version

    from tests.benchmarks.pfl_cohorts import cohort_seconds

    arrays = [(data.inputs(), data.labels) for data in clients]
    theirs = lambda: sum(  # noqa: E731
        cohort_seconds(network(), arrays, setting.device, setting.cohort, setting.cohorts, RATE, BATCH)
    )
    ratios, taken = paired(setting.pairs, ours, theirs)
    return Figure(AREA, name, "", ratios, detail=f"pfl {version('pfl')}", raw={"seconds": taken})


def network() -> nn.Module:
    """pfl-research's CNN: 1,626,442 parameters."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(64 * 14 * 14, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def examples(clients: int, images: int = IMAGES) -> list[LabelledData]:
    """The examples of each client."""
    rng = np.random.default_rng(0)
    prepared = Preprocessing(scale=255.0, mean=(0.5,) * 3, std=(0.25,) * 3)
    return [
        LabelledData(
            rng.integers(0, 256, (images, 3, 32, 32), dtype=np.uint8),
            rng.integers(0, 10, images),
            NAMES,
            prepared,
        )
        for _ in range(clients)
    ]


def _cohorts(
    setting: Setting, clients: list[LabelledData], work: Callable[[nn.Module, LabelledData], None]
) -> Callable[[], float]:
    """Return a function that trains all cohorts and returns the seconds.

    Each client starts from the same weights, and its change is added to the sum.
    """
    module = network().to(setting.device)
    start = {name: tensor.clone() for name, tensor in module.state_dict().items()}

    def seconds() -> float:
        rng = np.random.default_rng(0)
        _wait(setting.device)
        began = time.perf_counter()
        for _ in range(setting.cohorts):
            total = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
            for client in rng.choice(len(clients), setting.cohort, replace=False):
                module.load_state_dict(start)
                work(module, clients[client])
                _add(total, module, start)
        _wait(setting.device)
        return time.perf_counter() - began

    return seconds


def _add(total: dict[str, Tensor], module: nn.Module, start: dict[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            total[name] += tensor - start[name]


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def plain_updates(setting: Setting, clients: list[LabelledData]) -> Callable[[], float]:
    """Updates with the plain loop."""

    def work(module: nn.Module, data: LabelledData) -> None:
        inputs = torch.from_numpy(data.inputs()).to(setting.device)
        labels = torch.from_numpy(data.labels).to(setting.device)
        optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
        for batch in torch.randperm(len(labels), device=setting.device).split(BATCH):
            optimizer.zero_grad(set_to_none=True)
            functional.cross_entropy(module(inputs[batch]), labels[batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return _cohorts(setting, clients, work)


def recorded_updates(setting: Setting, clients: list[LabelledData]) -> Callable[[], float]:
    """Updates with a worker's recorded steps."""
    recorder = Recorder()
    plan = TrainingPlan(learning_rate=RATE, batch_size=BATCH, local_epochs=1, seed=0)
    return _cohorts(setting, clients, lambda module, data: void(train(module, data, plan, recorder=recorder)))


def void(_: object) -> None:
    """Discard the result of a training."""
