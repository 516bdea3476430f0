"""What a simulation costs beside its training alone, beside Flower's engine, and with very many devices.

`python -m tests.benchmarks.simulation` has more options. AdaFL's MNIST set-up: 100 clients of 600 images,
`mlp`, 5 local epochs of batch 10, a tenth of the clients per round, which is 300 steps for each. Whatever is
compared takes turns, and each pair gives one ratio.

The floor is the same steps in plain torch in as many processes, and nothing else. Flower's engine runs the
very loop of the floor in its clients, one core each; it tests nothing, we test every round: what is compared
are the rounds after the first, since both start their processes in that one. The floor and Flower take
torch's plain step; ours is a recorded one, the optimizer's kernels with it, with the same bits
(`edge_client/recording.py`).
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from edge_client.data.labelled import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.recording import Recorder
from edge_client.training import train
from edge_server.config import Config, load_config
from edge_server.simulation.simulator import simulate
from schemas.strategy import TrainingPlan
from schemas.values import ModelSpec
from tests.benchmarks.bare_loop import bare_seconds
from tests.benchmarks.figure import Figure, paired
from tests.benchmarks.flower.environment import Environment, NotInstalled, default_folder, installed
from tests.benchmarks.flower_simulation.engine import FlowerFailed, round_seconds
from tests.benchmarks.options import Options
from tests.benchmarks.virtual_devices import Rounds, measure

AREA = "simulation"
WORKERS = 2
MB = 1e6


def settings(
    data_root: str, rounds: int, workers: int, *, source: str = "MNIST", clients: int = 100
) -> Config:
    """AdaFL section 3.1, with FedAvg's constant fraction: the steps of a round are then always the same."""
    words = [
        f"data.source={source}",
        f'data.data-root="{data_root}"',
        'data.partition="shards"',
        "data.shards=2",
        "model.name=mlp",
        f"num-clients={clients}",
        "clients.fraction=0.1",
        f"rounds={rounds}",
        "training.optimizer=sgd",
        "learning-rate=0.01",
        "training.momentum=0.5",
        "local-epochs=5",
        "batch-size=10",
        f"workers={workers}",
    ]
    return load_config("fedavg", words)


def simulated_rounds(config: Config) -> tuple[float, list[float]]:
    """Wall seconds of a simulation and of its rounds: processes, data, tests, report, but no ONNX files."""
    watcher = Rounds()
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as folder:
        started = time.perf_counter()
        summary = simulate(config, out=Path(folder) / "run", watcher=watcher, export=False)
        seconds = time.perf_counter() - started
    if summary.outcome != "finished":
        raise RuntimeError(f"the simulation has {summary.outcome}: {summary.detail}")
    return seconds, watcher.seconds


def simulated_seconds(config: Config) -> float:
    """The first of them."""
    return simulated_rounds(config)[0]


def figures(options: Options) -> list[Figure]:
    """Steps, rounds beside both, and the crowd."""
    mnist = (options.data_root / "MNIST").exists()
    source = "MNIST" if mnist and not options.quick else "digits"
    rounds, pairs = (2, 1) if options.quick else (8, 3)
    config = settings(str(options.data_root), rounds, WORKERS, source=source, clients=100 if mnist else 20)
    return [
        recorded_step(config, pairs=1 if options.quick else 7),
        beside_floor(config, pairs),
        beside_flower(config, pairs=1 if options.quick else 2, quick=options.quick),
        *crowd(2_000 if options.quick else 100_000, options.folder),
    ]


def recorded_step(config: Config, pairs: int) -> Figure:
    """One client's epochs in this process, on one core: recorded steps over plain ones."""
    data = load_source(config.data.source or "digits", data_root=config.data.data_root).subset(range(600))
    plan = TrainingPlan(
        learning_rate=config.training.learning_rate,
        momentum=config.training.momentum,
        batch_size=config.training.batch_size,
        local_epochs=config.training.local_epochs,
        seed=0,
    )
    threads, recorder = torch.get_num_threads(), Recorder()
    torch.set_num_threads(1)
    try:
        seconds = _client(data, config.model.name, plan)
        # Recording is for a process's whole life, and not part of a step.
        seconds(recorder)
        ratios, taken = paired(pairs, lambda: seconds(None), lambda: seconds(recorder))
    finally:
        torch.set_num_threads(threads)
    return Figure(
        AREA,
        "a recorded step over a plain one",
        "",
        ratios,
        detail="the same bits; one client's 5 epochs of batch 10 on one core",
        raw={"seconds": taken},
    )


def _client(data: LabelledData, name: str, plan: TrainingPlan) -> Callable[[Recorder | None], float]:
    spec = ModelSpec(name=name, input_shape=data.input_shape, num_classes=data.num_classes)
    module = build_model(spec, seed=0)

    def seconds(recorder: Recorder | None) -> float:
        started = time.perf_counter()
        train(module, data, plan, recorder=recorder)
        return time.perf_counter() - started

    return seconds


def beside_floor(config: Config, pairs: int) -> Figure:
    """All of a simulation over the bare loop."""
    floor = lambda: bare_seconds(config, workers=WORKERS)  # noqa: E731
    ratios, taken = paired(pairs, floor, lambda: simulated_seconds(config))
    return Figure(
        AREA,
        "wall time over the training alone",
        "",
        ratios,
        target=1.1,
        detail=f"{config.federation.rounds} rounds of 10 x 300 steps, two cores, processes' starts included",
        raw={"seconds": taken},
    )


def beside_flower(config: Config, *, pairs: int, quick: bool) -> Figure:
    """A round of Flower's engine over one of ours."""
    name, unit = "times faster per round than Flower's engine", ""
    if quick:
        return Figure(AREA, name, unit, (), reason="left out of a quick run: Ray's start alone takes longer")
    try:
        environment: Environment = installed(default_folder())
        python = Path(environment.program("python"))
        taken = [
            (round_seconds(config, python, workers=WORKERS), simulated_rounds(config)[1])
            for _ in range(pairs)
        ]
    except (NotInstalled, FlowerFailed) as error:
        return Figure(AREA, name, unit, (), reason=f"Flower: {error}")
    ratios = tuple(statistics.median(its[1:]) / statistics.median(mine[1:]) for its, mine in taken)
    versions = f"flwr {environment.version('flwr')}, ray {environment.version('ray')}"
    its, mine = taken[-1]
    return Figure(
        AREA,
        name,
        unit,
        ratios,
        target=2.0,
        bound="at least",
        detail=f"{versions}; last pair: {statistics.median(its[1:]):.2f} s per round after {its[0]:.1f} s "
        f"for the first, ours {statistics.median(mine[1:]):.2f} s after {mine[0]:.1f} s",
        raw={"seconds": taken},
    )


def crowd(devices: int, folder: Path | None) -> list[Figure]:
    """Very many virtual devices, of which ten train per round."""
    few, many = measure(devices // 100, folder), measure(devices, folder)
    each = (many.peak_bytes - few.peak_bytes) / (many.devices - few.devices)
    found = f"{devices:,} virtual devices on one machine with the virtual clock, ten of them at work"
    raw = {"rounds": many.rounds, "few": few.rounds}
    return [
        Figure(AREA, f"a round of {devices:,} devices", "s", many.rounds[1:], detail=found, raw=raw),
        Figure(AREA, f"memory of {devices:,} devices", "MB", (many.peak_bytes / MB,), detail=found),
        Figure(
            AREA, "memory of one idle device", "kB", (each / 1e3,), detail="from the difference of two crowds"
        ),
    ]


def main() -> None:
    """Measure a simulation beside its training alone, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--data-root", default="../shared/data", help="folder with MNIST (default: %(default)s)"
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--format", choices=("table", "json"), default="table")
    args = parser.parse_args()
    config = settings(args.data_root, args.rounds, args.workers)
    pairs = []
    for _ in range(args.pairs):
        floor = bare_seconds(config, workers=args.workers)
        pairs.append((floor, simulated_seconds(config)))
        if args.format == "table":
            taken = pairs[-1][1]
            print(f"bare loop {floor:6.1f} s   simulation {taken:6.1f} s   ratio {taken / floor:.2f}")
    ratios = sorted(simulated / floor for floor, simulated in pairs)
    found = {
        "median_ratio": statistics.median(ratios),
        "lowest_ratio": ratios[0],
        "highest_ratio": ratios[-1],
        "pairs": pairs,
        "rounds": args.rounds,
        "workers": args.workers,
    }
    if args.format == "json":
        print(json.dumps(found, indent=2))
    else:
        middle = f"{found['median_ratio']:.2f}"
        print(f"ratio: median {middle}, {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(pairs)} pairs")


if __name__ == "__main__":
    main()
