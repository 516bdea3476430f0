"""Time and memory of a simulation of very many devices.

Every device has its own random image of 8 x 8 and a Raspberry Pi 4's virtual clock; ten of them train in each
round, so most of the cost is that of the devices themselves. The simulation is a separate process with its
own workers; their PSS is read from outside. The memory of an idle device is derived from the difference
between two runs of different sizes.
"""

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
    """The result of one run: wall seconds per round, the first with the start; the largest sum of PSS."""

    devices: int
    rounds: tuple[float, ...]
    peak_bytes: int


class Rounds:
    """Records when each round is closed."""

    def __init__(self) -> None:
        self._began, self.seconds = time.perf_counter(), list[float]()

    def show(self, snapshot: Snapshot) -> None:
        """Record the time if a round was closed."""
        if len(snapshot.history) > len(self.seconds):
            now = time.perf_counter()
            self.seconds.append(now - self._began)
            self._began = now


def measure(devices: int, folder: Path | None) -> Crowd:
    """Run the simulation in a separate process."""
    peak, started = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=folder) as name:
        result = Path(name) / "result.json"
        words = ["-m", "tests.benchmarks.virtual_devices", str(devices), name, str(result)]
        process = subprocess.Popen([sys.executable, *words])
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
    """Run the simulation and return the seconds of each round."""
    rng = np.random.default_rng(0)
    # Data without an official split is tested on a fifth of it.
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


if __name__ == "__main__":
    number, place, result = sys.argv[1:]
    Path(result).write_text(json.dumps(run(int(number), Path(place))))
