"""A training on a device over the same loop in any other process, in processor time.

Two warm processes take turns. One trains in its first thread. The other does as a device: its allocator
keeps what is freed (`edge_client/system/malloc.py`), and each epoch is a task with a thread of its own. The
bits are the same; a ratio below 1 is what a device spares before it has spent anything on a round.
"""

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from edge_client.system.malloc import keep_freed_memory
from tests.benchmarks.federation import LIMIT_S
from tests.benchmarks.floor import one_thread

Epoch = Callable[[], object]


def device_over_plain(make: Callable[[], Epoch], *, pairs: int) -> tuple[float, ...]:
    """Seconds of processor of an epoch on a device over those of the plain one, per pair.

    `make` is called in each of the two processes, which get it pickled, and returns what trains an epoch.
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
    """A process that trains an epoch whenever something is sent to it, and answers with its seconds."""
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


def _serve(make: Callable[[], Epoch], asked: Connection, as_device: bool) -> None:
    if as_device:
        keep_freed_memory()
    train = make()
    with contextlib.suppress(EOFError):
        while True:
            asked.recv()
            before = time.process_time()
            if as_device:
                task = threading.Thread(target=train)
                task.start()
                task.join()
            else:
                train()
            asked.send(time.process_time() - before)
