"""Sessions of served models: on the CPU, or on another provider with the CPU's beside it."""

import contextlib
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

import onnxruntime

from edge_client.inference.providers.table import CPU, PROVIDERS, Provider
from edge_client.models.graphs.boxes import without_boxes

log = logging.getLogger(__name__)


class NotTaken(Exception):
    """onnxruntime has opened the model, but not with the provider that it was asked for."""


def open_session(data: bytes, *, threads: int | None = None, row: Provider = CPU, engines: str = "") -> Any:
    """A session of a model with at most `threads` threads; raises onnxruntime's errors, and `NotTaken`.

    Operators that the provider lacks run on those that its row names, and last on the CPU. A detector gives
    its outputs alone: onnxruntime would make boxes in every run, and those of a batch take much memory.
    """
    with _as_file(without_boxes(data)) as source:
        return open_on(row, source, _options(threads), threads=threads, engines=engines)


def open_on(
    row: Provider, source: str | bytes, options: Any, *, threads: int | None = None, engines: str = ""
) -> Any:
    """As `open_session`, with these options."""
    if row is CPU:
        return onnxruntime.InferenceSession(source, options, providers=[CPU.runtime_name])
    available = onnxruntime.get_available_providers()
    rows = (row, *(PROVIDERS[name] for name in row.before if PROVIDERS[name].runtime_name in available))
    taken = [(each.runtime_name, dict(each.options(threads, engines))) for each in rows]
    # Otherwise onnxruntime opens it on the CPU, prints why, and says nothing to its caller.
    session = onnxruntime.InferenceSession(
        source, options, providers=[*taken, CPU.runtime_name], enable_fallback=0
    )
    if session.get_providers()[0] != row.runtime_name:
        raise NotTaken(f"onnxruntime cannot start it, and took {session.get_providers()[0]} in its place")
    return session


class GuardedSession:
    """A session on a provider that may fail later: the CPU then answers, that request and all others.

    A run of so many examples fails, too, if it takes longer than `deadline_s` of them. `on_failure` is told
    why, once. A request that the CPU cannot answer either is at fault itself.
    """

    def __init__(
        self,
        name: str,
        fast: Any,
        cpu: Any,
        *,
        deadline_s: Callable[[int], float],
        on_failure: Callable[[str], None],
    ) -> None:
        self.provider, self._session, self._cpu = name, fast, cpu
        self._deadline_s, self._on_failure = deadline_s, on_failure
        self._turn = threading.Lock()

    def run(self, names: Any, inputs: Mapping[str, Any]) -> Any:
        session = self._session
        if session is self._cpu:
            return session.run(names, inputs)
        deadline_s = self._deadline_s(len(next(iter(inputs.values()))))
        try:
            return run_within(deadline_s, lambda: session.run(names, inputs))
        except Exception as error:  # onnxruntime's share no other base class
            answers = self._cpu.run(names, inputs)
            self._fall_back(f"{type(error).__name__}: {' '.join(str(error).split())[:300]}")
            return answers

    def get_inputs(self) -> Any:
        return self._cpu.get_inputs()

    def _fall_back(self, reason: str) -> None:
        with self._turn:
            if self._session is self._cpu:
                return
            log.warning("%s failed, the CPU answers from now on: %s", self.provider, reason)
            self._session, self.provider = self._cpu, CPU.name
        self._on_failure(reason)


_Calls = queue.SimpleQueue[tuple[Callable[[], Any], "Future[Any]"]]
_IDLE: deque[_Calls] = deque()
"""The calls of threads that wait for one. They are kept, because providers keep things per thread."""


def run_within(seconds: float, call: Callable[[], Any]) -> Any:
    """The result of `call`, which another thread runs; `TimeoutError` after so long, and it runs on alone.

    These threads are daemons: one that never returns does not hold up the end of the process.
    """
    try:
        calls = _IDLE.pop()
    except IndexError:
        calls = queue.SimpleQueue()
        threading.Thread(target=_work, args=(calls,), name="provider", daemon=True).start()
    done: Future[Any] = Future()
    calls.put((call, done))
    try:
        return done.result(seconds)
    except TimeoutError:
        raise TimeoutError(f"no answer within {seconds:.1f} s") from None


def _work(calls: _Calls) -> None:
    while True:
        call, done = calls.get()
        try:
            tell = partial(done.set_result, call())
        except Exception as error:
            tell = partial(done.set_exception, error)
        _IDLE.append(calls)
        tell()
        del call, done, tell  # a waiting thread keeps no arrays


def _options(threads: int | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    # An arena keeps the memory of the largest batch and is no faster for networks of this size.
    options.enable_cpu_mem_arena = False
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    return options


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str | bytes]:
    """The bytes as a file in memory if the system has those: of bytes, onnxruntime keeps a copy."""
    if not hasattr(os, "memfd_create"):
        yield data
        return
    with os.fdopen(os.memfd_create("model"), "wb", buffering=0) as file:
        file.write(data)
        name = f"/proc/self/fd/{file.fileno()}"
        try:
            yield name
        except Exception as error:  # onnxruntime's share no other base class
            # Nobody knows the file by this name.
            error.args = (str(error).replace(f" from {name}", "").replace(name, "the model"),)
            raise
