"""Worker processes of this process: how they are begun, and how they end with it.

They do not import the program's main module, as multiprocessing's do: a script needs no guard for
`__main__`, and a notebook has no such module.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from multiprocessing import forkserver, resource_tracker
from multiprocessing.context import (
    BaseContext,
    ForkServerContext,
    ForkServerProcess,
    SpawnContext,
    SpawnProcess,
)
from typing import Any

from edge_server.config import own_networks

_MAIN = threading.Lock()


class _WithOwnNetworks:
    """A process that has the networks of this program (`own_networks`) by their names."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._networks = own_networks.portable()

    def run(self) -> None:
        if "fork" in multiprocessing.get_all_start_methods():
            # A lock that a library makes (tqdm's, as torch draws a graph) has no name then, so that nothing
            # of it is left where this process is killed.
            multiprocessing.set_start_method("fork", force=True)
        own_networks.take_networks(self._networks)
        super().run()  # type: ignore[misc]


class _ForkedProcess(_WithOwnNetworks, ForkServerProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _main_left_out():
            return ForkServerProcess._Popen(process_obj)


class _SpawnedProcess(_WithOwnNetworks, SpawnProcess):
    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        with _main_left_out():
            return SpawnProcess._Popen(process_obj)


class _ForkContext(ForkServerContext):
    Process = _ForkedProcess


class _SpawnContext(SpawnContext):
    Process = _SpawnedProcess


@contextlib.contextmanager
def _main_left_out() -> Iterator[None]:
    """Give the main module, inside, a name that `multiprocessing.spawn` does not import in a new process."""
    main = sys.modules["__main__"]
    with _MAIN:
        before = getattr(main, "__spec__", None)
        main.__spec__ = ModuleSpec("__main__", None)
        try:
            yield
        finally:
            main.__spec__ = before


def worker_context(preloaded: Sequence[str]) -> BaseContext:
    """Fork workers from a server that has imported torch once: they start fast and share its memory.

    The server of this process is started once; it imports the modules that were `preloaded` by then.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return spawn_context()
    context = _ForkContext()
    context.set_forkserver_preload(list(preloaded))
    return context


def spawn_context() -> SpawnContext:
    return _SpawnContext()


def ending(exit_code: int | None) -> str:
    """How a process ended, in words that follow its name: its `exit_code` is negative after a signal."""
    if exit_code == -signal.SIGKILL:
        return "was killed (SIGKILL): the system does so when memory runs out"
    if exit_code is not None and exit_code < 0:
        return f"has died of {signal.Signals(-exit_code).name}"
    return "has ended" + ("" if exit_code is None else f" with exit code {exit_code}: see its messages")


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
