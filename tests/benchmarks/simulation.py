"""How much longer a simulation takes than its training alone: `python -m tests.benchmarks.simulation`.

AdaFL's MNIST set-up: 100 clients of 600 images, `mlp`, 5 local epochs of batch 10, a tenth of the clients per
round. Floor and simulation take turns; each pair gives one ratio.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

from edge_server.config import Config, load_config
from edge_server.simulation.simulator import simulate
from edge_server.snapshot import Snapshot
from tests.benchmarks.bare_loop import bare_seconds


class Silent:
    """Shows nothing."""

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run."""


def settings(data_root: str, rounds: int, workers: int) -> Config:
    """AdaFL section 3.1, with FedAvg's constant fraction: the steps of a round are then always the same."""
    words = [
        "data.source=MNIST",
        f'data.data-root="{data_root}"',
        'data.partition="shards"',
        "data.shards=2",
        "model.name=mlp",
        "num-clients=100",
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


def simulated_seconds(config: Config) -> float:
    """Wall seconds of a simulation: processes, data, rounds, tests, history, report; no ONNX files."""
    with tempfile.TemporaryDirectory(prefix="edge-bench-") as folder:
        started = time.perf_counter()
        summary = simulate(config, out=Path(folder) / "run", watcher=Silent(), export=False)
        seconds = time.perf_counter() - started
    if summary.outcome != "finished":
        raise RuntimeError(f"the simulation has {summary.outcome}: {summary.detail}")
    return seconds


def main() -> None:
    """Measure and print."""
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
    figures = {
        "median_ratio": statistics.median(ratios),
        "lowest_ratio": ratios[0],
        "highest_ratio": ratios[-1],
        "pairs": pairs,
        "rounds": args.rounds,
        "workers": args.workers,
    }
    if args.format == "json":
        print(json.dumps(figures, indent=2))
    else:
        middle = f"{figures['median_ratio']:.2f}"
        print(f"ratio: median {middle}, {ratios[0]:.2f} to {ratios[-1]:.2f} in {len(pairs)} pairs")


if __name__ == "__main__":
    main()
