"""Worker processes of this process: how they are forked, and how they end with it."""

import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import BaseContext, ForkServerContext


def worker_context(preloaded: Sequence[str]) -> BaseContext:
    """Fork workers from a server that has imported torch once: they start fast and share its memory.

    The server of this process is started once; it imports the modules that were `preloaded` by then.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preloaded))
    return context


def start_fork_server(context: BaseContext) -> None:
    """Start the fork server in the background, if the context has one and it does not run yet."""
    if not isinstance(context, ForkServerContext):
        return
    # Started later, it would remove our block of SIGINT.
    resource_tracker.ensure_running()
    with interrupts_blocked():
        forkserver.ensure_running()


@contextlib.contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block SIGINT in this thread: processes started inside inherit the block.

    Ctrl-C reaches every process of the terminal, even during its imports.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """Exit as soon as the parent dies, since a killed parent cannot end its workers."""
    threading.Thread(target=_wait_for_parent, name="parent", daemon=True).start()


def _wait_for_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        with contextlib.suppress(OSError, ValueError):
            parent.join()
        os._exit(1)
