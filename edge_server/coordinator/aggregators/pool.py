"""The server's aggregator processes: they share out the updates of a round between them."""

import contextlib
import itertools
import logging
import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple, TypeVar

from edge_server.coordinator.aggregators import worker
from edge_server.coordinator.validation.update import Examination
from edge_server.coordinator.worker_processes import ending, spawn_context
from edge_server.strategy.aggregation.partial_sums import PartialSum
from schemas.errors import EdgeError
from schemas.tensors.arrays import Groups

log = logging.getLogger(__name__)


# One aggregator process and the pipe to it.
#
# Each process has a pipe of its own: a shared queue, as `ProcessPoolExecutor` has, may be left locked by a
# process that is killed, and the others then wait for ever.

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
        assert self._process.pid is not None
        return self._process.pid

    def send(self, call: Call) -> int:
        """Hand over a call, which waits for earlier ones; returns its number. Raises `ProcessDied`."""
        number = next(self._numbers)
        try:
            self._connection.send((number, call))
        except OSError as error:
            raise self._make_death_error() from error
        return number

    def receive(self, number: int) -> Answer:
        """Wait for the answer to a call; unread answers to earlier ones are dropped. Raises `ProcessDied`."""
        answer, answered = Answer(), -1
        try:
            while answered != number:
                answered, answer = self._connection.recv()
        except (EOFError, OSError) as died:
            raise self._make_death_error() from died
        return answer

    def _make_death_error(self) -> ProcessDied:
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


T = TypeVar("T")
WORTH_BYTES = 8_000_000
"""Updates of this size together are worth starting processes, where the federation file states no number."""
EXAMINED_AT_ONCE, AHEAD = 32, 2
"""Updates that a process examines at once, and how often it does so before the server must have looked at
what it has found."""
TRIES = 4  # Times that work is begun again after a process has died


def usual_count() -> int:
    """The number of processes where the federation file states none: a core is left to the server."""
    return max(0, (os.cpu_count() or 1) - 1)


class Added(NamedTuple):
    """Sums of updates, and of each update what is not in a sum, by client."""

    sums: Sequence[PartialSum]
    groups: Mapping[str, Groups]


class Taken(NamedTuple):
    """A call that a process has taken: its number there."""

    process: AggregatorProcess
    number: int


class AggregatorPool:
    """Up to `count` processes, started once `worth_bytes` of updates wait; a count of 0 means none.

    Call it from one thread. Work whose process dies is done again by new processes.
    """

    def __init__(self, count: int, setup: worker.AggregatorSetup, *, worth_bytes: int = 0) -> None:
        self._count, self._setup, self._worth_bytes = count, setup, worth_bytes
        self._processes: dict[int, AggregatorProcess] = {}
        self._names = itertools.count()
        self._examined: dict[str, int] = {}
        setup.remove_sums()

    def __len__(self) -> int:
        """The number of running processes; may be asked from another thread."""
        return len(self._processes)

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(process.pid for process in self._processes.values())

    def takes(self, updates: Sequence[worker.ToExamine] | Sequence[worker.ToAdd]) -> bool:
        """Whether the processes run already, or these updates are worth starting them."""
        if not self._count or not updates:
            return False
        return bool(self._processes) or sum(asked.update.blob.size for asked in updates) >= self._worth_bytes

    def examine(self, updates: Sequence[worker.ToExamine]) -> Iterator[Examination]:
        """Verify, sync and examine updates, in their order; the groups of sound ones are on disk.

        The processes go on with the next updates while the caller looks at what they have found.
        """
        at_once = self._count * EXAMINED_AT_ONCE
        ahead: deque[tuple[Sequence[Call], Mapping[int, Taken]]] = deque()
        for first in range(0, len(updates), at_once):
            shares = self._shares(updates[first : first + at_once])
            calls = [Call(worker.examine, (share,)) for share in shares]
            self._examined |= {
                asked.update.device: index for index, share in enumerate(shares) for asked in share
            }
            found = self._finish(*ahead.popleft()) if len(ahead) == AHEAD else []
            ahead.append((calls, self._begin(calls)))
            yield from _in_turn(found)
        for begun in ahead:
            yield from _in_turn(self._finish(*begun))

    def add(self, members: Sequence[worker.ToAdd]) -> Added:
        """Add all members: each process those that it has examined, and a share of the others."""
        self._setup.remove_sums()
        named = {str(next(self._names)): share for share in self._shares_to_add(members)}
        groups = self.run_calls([Call(worker.add_members, (share, name)) for name, share in named.items()])
        weights = [{member.update.device: member.weight for member in share} for share in named.values()]
        return Added(
            [self._setup.read(*read) for read in zip(named, weights, strict=True)],
            {client: rest for found in groups for client, rest in found.items()},
        )

    def close(self) -> None:
        """End the processes, and remove their sums."""
        for process in self._processes.values():
            process.end()
        self._processes.clear()
        self._setup.remove_sums()

    def _shares(self, work: Sequence[T]) -> list[list[T]]:
        """The work in as many lists as there are processes, dealt out one by one."""
        return [list(work[first :: self._count]) for first in range(min(self._count, len(work)))]

    def _shares_to_add(self, members: Sequence[worker.ToAdd]) -> list[list[worker.ToAdd]]:
        examined, self._examined = self._examined, {}
        others = itertools.cycle(range(min(self._count, len(members))))
        shares: list[list[worker.ToAdd]] = [[] for _ in range(self._count)]
        for member in members:
            index = examined.get(member.update.device)
            shares[next(others) if index is None else index].append(member)
        return shares[: 1 + max(index for index, share in enumerate(shares) if share)]

    def run_calls(self, calls: Sequence[Call]) -> list[Any]:
        """The values of at most one call for each process; raises what the first of them raised."""
        return self._finish(calls, self._begin(calls))

    def _begin(self, calls: Sequence[Call]) -> dict[int, Taken]:
        """Hand each call to a process; returns those that were taken, by index."""
        taken = {index: self._hand(index, call) for index, call in enumerate(calls)}
        return {index: found for index, found in taken.items() if found is not None}

    def _finish(self, calls: Sequence[Call], taken: Mapping[int, Taken]) -> list[Any]:
        """The values of calls, some of which processes have taken; raises as `run_calls`."""
        answers: dict[int, Answer] = {}
        how = ""
        for _ in range(TRIES):
            for index, (process, number) in taken.items():
                try:
                    answers[index] = process.receive(number)
                except ProcessDied as died:
                    how = str(died)
                    self._on_lost(index, process)
            if len(answers) == len(calls):
                return [_value(answers[index]) for index in range(len(calls))]
            missing = {i: self._hand(i, call) for i, call in enumerate(calls) if i not in answers}
            taken = {index: found for index, found in missing.items() if found is not None}
        raise EdgeError(
            f"aggregator processes have died {TRIES} times in a row (the last one {how}): "
            "use fewer with [federation] aggregators"
        )

    def _hand(self, index: int, call: Call) -> Taken | None:
        """Hand a call to the process of this index, which is started if there is none; None if it died."""
        if index not in self._processes:
            self._processes[index] = AggregatorProcess(Call(worker.begin, (self._setup,)))
        process = self._processes[index]
        try:
            return Taken(process, process.send(call))
        except ProcessDied:
            self._on_lost(index, process)
            return None

    def _on_lost(self, index: int, process: AggregatorProcess) -> None:
        """End a process that has died, unless another one has taken its place already."""
        if self._processes.get(index) is process:
            log.warning("aggregator process %d has died: another one does its work again", index)
            self._processes.pop(index).end()


def _in_turn(shares: Sequence[Sequence[T]]) -> Iterator[T]:
    """The items of shares in the order in which they were dealt out."""
    for dealt in itertools.zip_longest(*shares, fillvalue=None):
        yield from (item for item in dealt if item is not None)


def _value(answer: Answer) -> Any:
    if answer.error is not None:
        raise answer.error
    return answer.value
