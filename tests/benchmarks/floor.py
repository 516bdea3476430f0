"""The training of a round without a federation: ten warm processes that train at the same time.

Network, data, training loop, threads per process and number of processes are those of the devices. Everything
else is left out: links, blobs, checks, aggregation, models on disk.
"""

import contextlib
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

from tests.benchmarks.federation import DEVICES, LIMIT_S, Work


@contextlib.contextmanager
def floor(work: Work, data: Path) -> Iterator[Callable[[], float]]:
    """Start ten processes and train an epoch; each call of the result trains one more: wall seconds."""
    spawning = multiprocessing.get_context("spawn")
    barrier = spawning.Barrier(DEVICES + 1)
    workers = [
        spawning.Process(target=_train, args=(work.network, data, index, barrier), daemon=True)
        for index in range(DEVICES)
    ]
    try:
        with one_thread():
            for worker in workers:
                worker.start()
        barrier.wait(LIMIT_S)
        yield lambda: _epoch(barrier)
    finally:
        barrier.abort()
        for worker in workers:
            worker.join(10)
            worker.kill()


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let processes started in the block use one thread each: numpy and torch read this when imported."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        os.environ.pop("OMP_NUM_THREADS")
        if before is not None:
            os.environ["OMP_NUM_THREADS"] = before


def _epoch(barrier: Barrier) -> float:
    barrier.wait(LIMIT_S)
    started = time.perf_counter()
    barrier.wait(LIMIT_S)
    return time.perf_counter() - started


def _train(network: str, folder: Path, index: int, barrier: Barrier) -> None:
    train = training(network, folder, index)
    train()
    with contextlib.suppress(threading.BrokenBarrierError):
        barrier.wait(LIMIT_S)
        while True:
            barrier.wait()
            train()
            barrier.wait(LIMIT_S)


def training(network: str, folder: Path, index: int) -> Callable[[], None]:
    """The epoch that device `index` trains in a round, on one thread."""
    import torch

    from edge_client.data.sources import load_source
    from edge_client.models.build import build_model
    from edge_client.training.loop import train
    from schemas.strategy import TrainingPlan
    from schemas.values import ModelSpec

    torch.set_num_threads(1)
    data = load_source(f"npz:{folder / f'client-{index}.npz'}")
    module = build_model(ModelSpec(name=network, input_shape=(1, 28, 28), num_classes=10), seed=0)
    plan = TrainingPlan(optimizer="sgd", learning_rate=0.01, batch_size=32, local_epochs=1, seed=index)

    def epoch() -> None:
        train(module, data, plan)

    return epoch
