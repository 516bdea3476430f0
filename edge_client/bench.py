"""How fast an exported network is on this machine: latency, throughput and memory, without torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_client.data.labelled import Inputs
from edge_client.inference import LoadedModel, load_model
from edge_client.memory_use import resident_bytes
from edge_client.trust import TrustedKey

BATCH = 32
"""Images at once when measuring throughput."""
_WARM_UP_RUNS = 3


@dataclass(frozen=True)
class BenchResult:
    """Measured with `threads` threads: milliseconds for one image alone, images per second in batches of 32.

    `rss_bytes` is the memory of the whole process with the model loaded; `runs` counts single images.
    """

    threads: int
    runs: int
    median_ms: float
    p95_ms: float
    images_per_second: float
    rss_bytes: int


def bench(
    path: Path, *, max_threads: int = 1, seconds: float = 1.0, trust: TrustedKey | None = None
) -> tuple[BenchResult, ...]:
    """Measure the model at `path` with 1, 2, 4... up to `max_threads` threads, `seconds` for each of them.

    With `trust` it must be one that this key vouches for.
    """
    return tuple(
        bench_model(load_model(path, threads=threads, trust=trust), threads=threads, seconds=seconds)
        for threads in thread_counts(max_threads)
    )


def bench_model(model: LoadedModel, *, threads: int, seconds: float = 1.0) -> BenchResult:
    """Measure a loaded model; half of `seconds` goes to latency and half to throughput."""
    inputs = _noise(model, BATCH)
    single = _durations(lambda: model.run(inputs[:1]), seconds / 2)
    batched = _durations(lambda: model.run(inputs), seconds / 2)
    return BenchResult(
        threads=threads,
        runs=len(single),
        median_ms=float(np.median(single)) * 1e3,
        p95_ms=float(np.percentile(single, 95)) * 1e3,
        images_per_second=BATCH * len(batched) / float(np.sum(batched)),
        rss_bytes=resident_bytes(),
    )


def thread_counts(most: int) -> tuple[int, ...]:
    """1, 2, 4... below `most`, and `most` itself."""
    return tuple(sorted({1 << power for power in range(most.bit_length()) if 1 << power < most} | {most}))


def latencies_ms(models: Sequence[LoadedModel], *, seconds: float) -> list[float]:
    """Median milliseconds for one image alone, per model, within `seconds` for all of them.

    They take turns, so that whatever else the machine does slows all of them alike.
    """
    inputs = [_noise(model, 1) for model in models]
    taken: list[list[float]] = [[] for _ in models]
    for _ in range(_WARM_UP_RUNS):
        for model, one in zip(models, inputs, strict=True):
            model.run(one)
    end = time.perf_counter() + seconds
    while not taken[-1] or time.perf_counter() < end:
        for model, one, times in zip(models, inputs, taken, strict=True):
            start = time.perf_counter()
            model.run(one)
            times.append(time.perf_counter() - start)
    return [float(np.median(times)) * 1e3 for times in taken]


def _noise(model: LoadedModel, count: int) -> Inputs:
    return np.random.default_rng(0).standard_normal((count, *model.input_shape), dtype=np.float32)


def _durations(run: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of each run within a time budget; first runs, which allocate, do not count."""
    for _ in range(_WARM_UP_RUNS):
        run()
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while not taken or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return taken
