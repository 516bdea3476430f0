"""Memory of a simulation of a thousand devices.

`attending` with 1,000 clients of `two-nn` on 60 images of MNIST each. The simulation runs as a separate
command; its processes are measured from outside. A page that several processes share counts once (PSS).
"""

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.benchmarks.figure import Figure
from tests.benchmarks.options import Options
from tests.benchmarks.resident import family, looks, pss

BOUND_BYTES = 1_500_000_000
"""Limit for a simulation of 1,000 clients of `two-nn`."""
SAMPLE_S = 0.5
ROLES = ("simulation", "helper", "worker")
"""By descent: the command itself, its children, and the workers that the fork server starts."""


def command(options: Options, clients: int, fraction: float, out: Path) -> list[str]:
    """The simulation to measure; every client has 60 images, trained on once in one batch."""
    words = [
        "data.source=MNIST",
        f'data.data-root="{options.data_root}"',
        "data.samples-per-client=60",
        "model.name=two-nn",
        f"num-clients={clients}",
        f"clients.fraction={fraction}",
        "rounds=1",
        "local-epochs=1",
        "batch-size=64",
        "workers=2",
    ]
    program = [sys.executable, "-m", "edge_server.cli.main", "simulate", "attending"]
    return [*program, *words, "--out", str(out), "--format", "json"]


def measure(options: Options, clients: int, fraction: float) -> tuple[int, dict[str, int], float]:
    """Run the simulation: the peak of the sum in bytes, the peak of each process, wall seconds."""
    peak, peaks = 0, Counter[str]()
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="edge-bench-", dir=options.folder) as folder:
        words = command(options, clients, fraction, Path(folder) / "run")
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            for _ in looks(process, every_s=SAMPLE_S):
                now = sample(process.pid)
                peak = max(peak, sum(now.values()))
                peaks = peaks | Counter(now)
        finally:
            process.terminate()
            process.wait()
    if process.returncode != 0:
        raise RuntimeError(f"the simulation ended with {process.returncode}")
    return peak, dict(peaks), time.perf_counter() - started


def figures(options: Options) -> list[Figure]:
    """Measure one round in which a fiftieth of the devices trains the full model."""
    clients, fraction = (40, 0.1) if options.quick else (1000, 0.02)
    found = f"{clients:,} clients of two-nn, a share of {fraction:g} in one round, two workers"
    if not (options.data_root / "MNIST").exists():
        return [Figure("simulation", "memory", "MB", (), reason=f"no MNIST in {options.data_root}")]
    peak, peaks, seconds = measure(options, clients, fraction)
    return [
        Figure(
            "simulation",
            f"memory, {clients:,} devices",
            "MB",
            (peak / 1e6,),
            target=BOUND_BYTES / 1e6,
            detail=f"{found}; the largest sum of all processes' PSS, in {seconds:.0f} s",
            raw={"processes": peaks},
        )
    ]


def sample(root: int) -> dict[str, int]:
    """Bytes of a process and of its descendants, by role and process id."""
    depths = family(root)
    sizes = {pid: pss(pid) for pid in depths}
    return {f"{ROLES[min(depths[pid], 2)]} {pid}": size for pid, size in sizes.items() if size is not None}
