"""Training on a device over the same loop in a plain process, in processor time.

Two warm processes take turns. One trains in its main thread. The other works like a device: its allocator
keeps freed memory (`edge_client/system/process_memory.py`), and each epoch is a task with its own thread. The
results are identical bit by bit; a ratio below 1 is time that a device saves before the costs of a round.
"""

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from edge_client.system.process_memory import keep_freed_memory
from tests.benchmarks.federation import LIMIT_S
from tests.benchmarks.floor import one_thread

Epoch = Callable[[], object]


def device_over_plain(make: Callable[[], Epoch], *, pairs: int) -> tuple[float, ...]:
    """Processor seconds of an epoch on a device over those of the plain process, per pair.

    `make` is called in both processes, which receive it pickled, and returns a function that trains an epoch.
    """
    with _trainer(make, as_device=True) as device, _trainer(make, as_device=False) as plain:
        for side in (device, plain):
            _epoch(side)
        return tuple(_epoch(device) / _epoch(plain) for _ in range(pairs))


def _epoch(trainer: Connection) -> float:
    trainer.send(None)
    if not trainer.poll(LIMIT_S):
        raise RuntimeError(f"an epoch has not ended in {LIMIT_S:.0f} s")
    seconds: float = trainer.recv()
    return seconds


@contextlib.contextmanager
def _trainer(make: Callable[[], Epoch], *, as_device: bool) -> Iterator[Connection]:
    """Start a process that trains an epoch for each message, and answers with its seconds."""
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    process = spawning.Process(target=_serve, args=(make, theirs, as_device), daemon=True)
    try:
        with one_thread():
            process.start()
        theirs.close()
        yield ours
    finally:
        ours.close()
        process.join(10)
        process.kill()


def _serve(make: Callable[[], Epoch], requests: Connection, as_device: bool) -> None:
    if as_device:
        keep_freed_memory()
    train = make()
    with contextlib.suppress(EOFError):
        while True:
            requests.recv()
            before = time.process_time()
            if as_device:
                task = threading.Thread(target=train)
                task.start()
                task.join()
            else:
                train()
            requests.send(time.process_time() - before)
