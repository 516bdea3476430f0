"""A round of training the output layer, with features that are kept, without, and of the whole network.

The same simulation in three versions, on one thread; processor time of the devices' work and of all the
round, in the rounds after the first one. `features-device` is a single device of 150 examples with either
trainer, `features-flower` a simulation with Flower's engine beside it.
"""

import contextlib
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from edge_client.models.build import build_model
from edge_client.models.frozen_part import find_split
from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.client_work import ClientWork
from edge_server.simulation.simulator import simulate
from schemas.values import ModelSpec
from tests.benchmarks.figure import Figure, paired
from tests.benchmarks.flower.environment import NotInstalled, default_folder, installed
from tests.benchmarks.flower_simulation.engine import head_rounds
from tests.benchmarks.options import Options

SIDE, EXAMPLES, CLASSES = 96, 400, 10
VERSIONS = {
    "kept": ("training.train=head",),
    "not kept": ("training.train=head", "training.feature-cache-mb=0"),
    "whole": (),
}
WORDS = (
    "data.source=python:tests.benchmarks.features:pictures",
    "model.name=mobilenet-v2",
    "test-samples=20",
    "clients.fraction=1.0",
    "batch-size=32",
    "tiers.ratios=[0.0]",
    "workers=1",
)


AREA = "features"
OF_A_DEVICE, DEVICES, FEW, TURNS = 150, 100, 10, 2
MAX_SHARE, MIN_TIMES = 0.01, 20


def many_pictures() -> tuple[np.ndarray, np.ndarray]:
    """As `pictures`, for all devices of a simulation."""
    random, count = np.random.default_rng(0), DEVICES * OF_A_DEVICE * 5 // 4
    images = random.integers(0, 256, (count, 3, SIDE, SIDE), dtype=np.uint8)
    return images, np.arange(count) % CLASSES


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """Noise in the size at which a pretrained network for boards sees pictures."""
    random = np.random.default_rng(0)
    images = random.integers(0, 256, (EXAMPLES, 3, SIDE, SIDE), dtype=np.uint8)
    return images, np.arange(EXAMPLES) % CLASSES


@dataclass
class Clock:
    """The processor time and the time of each round, and of the devices' work in it."""

    rounds: list[float] = field(default_factory=list)
    walls: list[float] = field(default_factory=list)
    work: list[float] = field(default_factory=list)
    _devices: float = 0.0

    def show(self, snapshot: Snapshot) -> None:
        """Note the time when a round has been closed."""
        if len(snapshot.history) > len(self.work):
            self.rounds.append(time.process_time())
            self.walls.append(time.perf_counter())
            self.work.append(self._devices)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note what the devices' work takes inside."""
        own: Callable[..., Any] = ClientWork.do

        def do(*arguments: Any) -> Any:
            began = time.process_time()
            try:
                return own(*arguments)
            finally:
                self._devices += time.process_time() - began

        with patch.object(ClientWork, "do", do):
            yield

    def later(self, times: list[float]) -> float:
        """The mean of the rounds after the first one."""
        return (times[-1] - times[0]) / (len(times) - 1)


def figures(options: Options) -> list[Figure]:
    """The two other versions over the one that keeps features."""
    clients, examples, rounds = (2, 16, 2) if options.quick else (10, 32, 4)
    sizes = (f"num-clients={clients}", f"samples-per-client={examples}", f"rounds={rounds}")
    clocks = {name: _run((*WORDS, *sizes, *words)) for name, words in VERSIONS.items()}
    kept = clocks["kept"]
    detail = f"mobilenet-v2, {SIDE} pixels, {clients} devices with {examples} examples, 3 epochs"
    result = []
    for name in ("not kept", "whole"):
        for what in ("work", "rounds"):
            ours, other = (clock.later(getattr(clock, what)) for clock in (kept, clocks[name]))
            label = "devices' work" if what == "work" else "all of a round"
            raw = {"seconds kept": ours, f"seconds {name}": other}
            result.append(
                Figure("features", f"{label}: {name} over kept", "x", (other / ours,), detail=detail, raw=raw)
            )
    return result


def device(options: Options) -> list[Figure]:
    """A later round of the head over one of the whole network: a device's work, with either trainer."""
    examples, rounds, turns = (16, 2, 1) if options.quick else (OF_A_DEVICE, 4, TURNS)
    sizes = (*WORDS, "num-clients=1", f"samples-per-client={examples}")
    result = []
    for trainer in ("torch", "onnx"):
        words = (*sizes, f"simulation.trainer={trainer}")

        def later(number: int, *more: str, words: tuple[str, ...] = words) -> float:
            clock = _run((*words, f"rounds={number}", *more))
            return clock.later(clock.work)

        whole, head = partial(later, 2), partial(later, rounds, *VERSIONS["kept"])
        ratios, taken = paired(turns, whole, head)
        detail = f"mobilenet-v2, {SIDE} pixels, {examples} examples, 3 epochs; processor time of the device"
        name = f"a device's later round with {trainer}: head over whole network"
        raw = {"seconds whole and head": taken}
        result.append(Figure(AREA, name, "", ratios, MAX_SHARE, detail=detail, raw=raw))
    return result


def flower(options: Options) -> list[Figure]:
    """A simulated device's later round in Flower's engine, and here without the cache, over one with it."""
    examples, many = (16, FEW) if options.quick else (OF_A_DEVICE, DEVICES)
    words = (
        *WORDS, f"samples-per-client={examples}", "local-epochs=1", "training.train=head",
        "data.source=python:tests.benchmarks.features:many_pictures", "test-samples=200",
    )  # fmt: skip
    try:
        python = Path(installed(default_folder()).program("python"))
    except NotInstalled as error:
        return [Figure(AREA, "Flower's engine over ours", "x", (), MIN_TIMES, "at least", reason=str(error))]
    with tempfile.TemporaryDirectory() as name:
        frozen, width = _trace_frozen(Path(name))

        def kept() -> tuple[float, ...]:
            clock = _run((*words, f"num-clients={many}", "rounds=4"))
            return clock.later(clock.rounds) / many, clock.later(clock.walls) / many

        def not_kept() -> tuple[float, ...]:
            more = (f"num-clients={FEW}", "rounds=3", "training.feature-cache-mb=0")
            clock = _run((*words, *more))
            return clock.later(clock.rounds) / FEW, clock.later(clock.walls) / FEW

        def its() -> tuple[float, ...]:
            config = load_config("fedavg", [*words, f"num-clients={FEW}", "rounds=3"])
            rounds = head_rounds(config, python, frozen, width=width, workers=1)
            wall, processor = (sum(each) / len(rounds) / FEW for each in zip(*rounds, strict=True))
            return processor, wall

        turns = [(kept(), not_kept(), its()) for _ in range(1 if options.quick else TURNS)]
    result = []
    for label, place in (("without the cache", 1), ("Flower's engine", 2)):
        for what, number in (("processor time", 0), ("wall time", 1)):
            ratios = tuple(turn[place][number] / turn[0][number] for turn in turns)
            detail = (
                f"head of mobilenet-v2, {SIDE} pixels, {examples} examples, 1 epoch, after the first round, "
                f"one process: {many} devices with the cache, {FEW} without and in Flower, per device"
            )
            target = MIN_TIMES if number == 0 else None
            text = f"a simulated device's later round, {what}: {label} over ours"
            raw = {"processor and wall seconds: kept, not kept, Flower": turns}
            result.append(Figure(AREA, text, "x", ratios, target, "at least", detail=detail, raw=raw))
    return result


def _trace_frozen(folder: Path) -> tuple[Path, int]:
    """The frozen part of the network as a file for Flower's environment, and the number of features."""
    shape = (3, SIDE, SIDE)
    module = build_model(ModelSpec(name="mobilenet-v2", input_shape=shape, num_classes=CLASSES))
    split = find_split(
        module, [name for name in module.state_dict() if name.startswith("classifier.")], shape
    )
    layout = torch.channels_last
    network = split.feature_network.eval().to(memory_format=layout)  # type: ignore[call-overload]
    path = folder / "frozen.pt"
    with torch.no_grad():
        inputs = torch.zeros(2, *shape).contiguous(memory_format=layout)
        torch.jit.trace(network, inputs).save(str(path))  # type: ignore[no-untyped-call]
    return path, split.width


def _run(words: tuple[str, ...]) -> Clock:
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder, clock.watching():
        simulate(load_config("fedavg", list(words)), out=Path(folder) / "run", watcher=clock, export=False)
    return clock
