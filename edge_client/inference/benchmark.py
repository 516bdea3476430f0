"""Latency, throughput and memory of an exported network on this machine, without torch."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from edge_client.data.dataset import Inputs, raw_examples
from edge_client.inference.onnx_model import LoadedModel, said_in_one_line
from edge_client.inference.providers import loading, table
from edge_client.security.trusted_key import TrustedKey
from edge_client.system.process_memory import resident_bytes
from schemas.errors import EdgeError

BATCH = 32  # images per run when measuring throughput
_WARM_UP_RUNS = 3
_END_S = 2.0  # For the run of a network that is under way


@dataclass(frozen=True)
class BenchResult:
    """Milliseconds for single images, of which there were `runs`, and images per second in batches of 32.

    `rss_bytes` is the memory of the whole process with the model loaded, `provider` what ran it.
    """

    threads: int
    runs: int
    median_ms: float
    p95_ms: float
    images_per_second: float
    rss_bytes: int
    provider: str = "cpu"


def bench(
    path: Path,
    *,
    max_threads: int = 1,
    seconds: float = 1.0,
    trust: TrustedKey | None = None,
    providers: table.ProviderSettings = table.CPU_ALONE,
) -> Iterator[BenchResult]:
    """Measure the model at `path` with 1, 2, 4... `max_threads` threads, `seconds` each.

    With `trust` the model must be signed by that key. Raises `ConfigError` for a model that cannot be run.
    """
    for threads in thread_counts(max_threads):
        with said_in_one_line(path):
            model = loading.load_on_provider(path, providers, threads=threads, trust=trust)
            yield bench_model(model, threads=threads, seconds=seconds)


def collect(found: Iterator[BenchResult], results: list[BenchResult], deadline_s: float) -> None:
    """Add the results as they are measured, in a thread: a network that never answers stops no other thread.

    Raises `EdgeError` if they are not complete after `deadline_s` seconds.
    """
    done, failed = threading.Event(), list[BaseException]()

    def measure() -> None:
        try:
            results.extend(found)
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    thread = threading.Thread(target=measure, name="bench", daemon=True)
    thread.start()
    try:
        if not done.wait(deadline_s):
            raise EdgeError(f"not measured within {deadline_s:g} s: --deadline waits longer")
    except BaseException:
        # A thread that returns from the network while the interpreter ends would abort the process.
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
        )
        thread.join(_END_S)
        raise
    if failed:
        raise failed[0]


def bench_model(model: LoadedModel, *, threads: int, seconds: float = 1.0) -> BenchResult:
    """Measure a loaded model: latency for half of `seconds`, throughput for the other half."""
    inputs = make_noise(model, BATCH)
    (single,) = time_runs([lambda: model.run(inputs[:1])], seconds / 2)
    (batched,) = time_runs([lambda: model.run(inputs)], seconds / 2)
    return BenchResult(
        threads=threads,
        runs=len(single),
        median_ms=float(np.median(single)) * 1e3,
        p95_ms=float(np.percentile(single, 95)) * 1e3,
        images_per_second=BATCH * len(batched) / float(np.sum(batched)),
        rss_bytes=resident_bytes(),
        provider=model.provider,
    )


def thread_counts(most: int) -> tuple[int, ...]:
    """1, 2, 4... below `most`, and `most` itself."""
    return tuple(sorted({1 << power for power in range(most.bit_length()) if 1 << power < most} | {most}))


def latencies_ms(models: Sequence[LoadedModel], *, seconds: float) -> list[float]:
    """Median milliseconds per single image of each model, measured in turns within `seconds` in total."""
    return medians_ms([partial(model.run, make_noise(model, 1)) for model in models], seconds=seconds)


def medians_ms(
    runs: Sequence[Callable[[], object]], *, seconds: float, least: int = 1, most: int | None = None
) -> list[float]:
    """Median milliseconds of each function, called in `least` to `most` turns within `seconds`."""
    taken = time_runs(runs, seconds, least=least, most=most)
    return [float(np.median(times)) * 1e3 for times in taken]


def make_noise(model: LoadedModel, count: int) -> Inputs:
    """Random inputs [count, ...] of the model, always the same; normal once they are scaled."""
    noise = np.random.default_rng(0).standard_normal((count, *model.input_shape), dtype=np.float32)
    return raw_examples(noise, model.preprocessing) if model.scales else noise


def time_runs(
    runs: Sequence[Callable[[], object]], seconds: float, *, least: int = 1, most: int | None = None
) -> list[list[float]]:
    """Seconds of each call of each function, in turns; the first calls, which allocate, do not count."""
    for _ in range(_WARM_UP_RUNS):
        for run in runs:
            run()
    taken: list[list[float]] = [[] for _ in runs]
    end = time.perf_counter() + seconds
    while (turns := len(taken[0])) < least or (turns != most and time.perf_counter() < end):
        for run, times in zip(runs, taken, strict=True):
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
    return taken
