"""Time and memory of a simulation of very many devices: `python -m tests.benchmarks.virtual_devices`.

Every device has an image of 8 x 8 of its own, made at random, and a Raspberry Pi 4's virtual clock; ten of
them train in each round. What is left is what the devices themselves cost. The simulation is a process of its
own, with its workers: their PSS is read from outside, and what an idle device takes is the difference between
two such runs of unlike size.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.simulator import simulate
from tests.benchmarks.memory import sample
from tests.benchmarks.resident import looks

SAMPLE_S = 0.25
AT_WORK = 10
ROUNDS = 3
LONGEST_S = 300.0


@dataclass(frozen=True)
class Crowd:
    """What came of one run: wall seconds per round, the first with the start; the largest sum of PSS."""

    devices: int
    rounds: tuple[float, ...]
    peak_bytes: int


class Rounds:
    """Shows nothing, and notes when each round is closed."""

    def __init__(self) -> None:
        self._began, self.seconds = time.perf_counter(), list[float]()

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run."""
        if len(snapshot.history) > len(self.seconds):
            now = time.perf_counter()
            self.seconds.append(now - self._began)
            self._began = now


def measure(devices: int, folder: Path | None) -> Crowd:
    """Run it as a process of its own."""
    peak, started = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=folder) as name:
        result = Path(name) / "result.json"
        command = [
            sys.executable,
            "-m",
            "tests.benchmarks.virtual_devices",
            str(devices),
            name,
            "--result",
            str(result),
        ]
        process = subprocess.Popen(command)
        try:
            for _ in looks(process, every_s=SAMPLE_S):
                peak = max(peak, sum(sample(process.pid).values()))
                if time.monotonic() - started > LONGEST_S:
                    raise RuntimeError(f"{devices} devices: not done within {LONGEST_S:g} s")
        finally:
            process.terminate()
            process.wait()
        if process.returncode:
            raise RuntimeError(f"{devices} devices: the simulation ended with {process.returncode}")
        return Crowd(devices, tuple(json.loads(result.read_text())), peak)


def run(devices: int, folder: Path) -> list[float]:
    """Seconds of each round."""
    rng = np.random.default_rng(0)
    # A fifth of data without an official split is for testing.
    count = -(-devices * 5 // 4) + 10
    images = rng.integers(0, 17, (count, 1, 8, 8), dtype=np.uint8)
    np.savez(folder / "images.npz", images=images, labels=np.arange(count) % 10)
    words = [
        f'data.source="npz:{folder}/images.npz"',
        "model.name=mlp",
        f"num-clients={devices}",
        f"clients.fraction={AT_WORK / devices}",
        f"rounds={ROUNDS}",
        "local-epochs=1",
        "batch-size=10",
        "workers=1",
        'simulation.clock=["pi-4"]',
    ]
    watcher = Rounds()
    summary = simulate(load_config("fedavg", words), out=folder / "run", watcher=watcher, export=False)
    if summary.outcome != "finished":
        raise RuntimeError(f"the simulation has {summary.outcome}: {summary.detail}")
    return watcher.seconds


def main() -> None:
    """Run one, and print or write what came of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("devices", type=int, nargs="?", default=100_000)
    parser.add_argument("folder", type=Path, nargs="?", help="where the run goes (default: none stays)")
    parser.add_argument("--result", type=Path, help="write the seconds of the rounds here")
    args = parser.parse_args()
    if args.folder and args.result:
        args.result.write_text(json.dumps(run(args.devices, args.folder)))
        return
    crowd = measure(args.devices, args.folder)
    reported = ", ".join(f"{seconds:.2f}" for seconds in crowd.rounds)
    print(f"{crowd.devices:,} devices: rounds of {reported} s, {crowd.peak_bytes / 1e6:,.0f} MB at most")


if __name__ == "__main__":
    main()
