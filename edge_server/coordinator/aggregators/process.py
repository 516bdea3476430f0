"""One aggregator process and the pipe to it.

Each process has a pipe of its own: a shared queue, as `ProcessPoolExecutor` has, may be left locked by a
process that is killed, and the others then wait for ever.
"""

import contextlib
import itertools
import queue
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from edge_server.coordinator.worker_processes import ending, spawn_context

END_S = 5.0


class Call(NamedTuple):
    """A function of a module, and its arguments; both are pickled."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]


class Answer(NamedTuple):
    """What a call returned, or the exception that it raised."""

    value: Any = None
    error: Exception | None = None


class ProcessDied(Exception):
    """The process ended before it answered; says how."""


class AggregatorProcess:
    """A process that answers one call after the other; `begin` is called in it first."""

    def __init__(self, begin: Call) -> None:
        context = spawn_context()
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, begin), name="aggregator", daemon=True)
        self._process.start()
        # The process has a copy: with this one open, its end would go unnoticed.
        theirs.close()
        self._numbers = itertools.count()

    @property
    def pid(self) -> int:
        """The process's id."""
        assert self._process.pid is not None
        return self._process.pid

    def send(self, call: Call) -> int:
        """Hand over a call, which waits for earlier ones; returns its number. Raises `ProcessDied`."""
        number = next(self._numbers)
        try:
            self._connection.send((number, call))
        except OSError as error:
            raise self._died() from error
        return number

    def receive(self, number: int) -> Answer:
        """Wait for the answer to a call; unread answers to earlier ones are dropped. Raises `ProcessDied`."""
        answer, answered = Answer(), -1
        try:
            while answered != number:
                answered, answer = self._connection.recv()
        except (EOFError, OSError) as died:
            raise self._died() from died
        return answer

    def _died(self) -> ProcessDied:
        self._process.join(END_S)
        return ProcessDied(ending(self._process.exitcode))

    def end(self) -> None:
        """End the process by closing its pipe; kill it if it is still at work."""
        self._connection.close()
        self._process.join(END_S)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()


def serve(connection: Connection, begin: Call) -> None:
    """Answer calls until the pipe is closed."""
    begin.function(*begin.arguments)
    calls: queue.SimpleQueue[tuple[int, Call] | None] = queue.SimpleQueue()
    # Calls are read while one is at work: with both ends writing into a full pipe, both would wait for ever.
    threading.Thread(target=_read, args=(connection, calls), name="calls", daemon=True).start()
    with contextlib.suppress(OSError):
        while (read := calls.get()) is not None:
            number, call = read
            connection.send((number, _answer(call)))


def _read(connection: Connection, calls: "queue.SimpleQueue[tuple[int, Call] | None]") -> None:
    with contextlib.suppress(EOFError, OSError):
        while True:
            calls.put(connection.recv())
    calls.put(None)


def _answer(call: Call) -> Answer:
    try:
        return Answer(call.function(*call.arguments))
    except Exception as error:
        return Answer(error=error)
