"""Aggregator processes, whose work is done at once, in the process that waits for it; they can die of it."""

import pickle
from typing import Any, Protocol

from edge_server.coordinator.aggregators import worker
from edge_server.coordinator.aggregators.pool import Answer, Call, ProcessDied
from tests.storm.disk import Killed, Machine


class Parent(Protocol):
    """The server's process; `deadly` is the number of disk operations after which the next call ends."""

    machine: Machine
    deadly: int | None


class InlineAggregator:
    """Stands in for `AggregatorProcess`; what is handed over is pickled, as on its way through a pipe."""

    pid = 2

    def __init__(self, begin: Call, *, parent: Parent) -> None:
        self._parent = parent
        self._calls: list[Call] = []
        self._done, self._died = 0, False
        begin = _copy(begin)
        begin.function(*begin.arguments)
        self._setup = worker._setup

    def send(self, call: Call) -> int:
        """Take a call, which waits for earlier ones; returns its number."""
        self._calls.append(_copy(call))
        return len(self._calls) - 1

    def receive(self, number: int) -> Answer:
        """Do what was asked up to this call; raises `ProcessDied` if it is to die of one of them."""
        answer = Answer()
        while self._done <= number:
            answer = self._do(self._calls[self._done])
            self._done += 1
        return answer

    def _do(self, call: Call) -> Answer:
        if self._died:
            raise ProcessDied
        worker._setup = self._setup
        machine, deadly = self._parent.machine, self._parent.deadly
        if deadly is None or machine.crash_after is not None:
            answer: Answer = _copy(_answer(call))
            return answer
        self._parent.deadly, self._died = None, True
        machine.crash_after = deadly
        try:
            _answer(call)
        except Killed:
            machine.dead = False
        machine.crash_after = None
        raise ProcessDied

    def end(self) -> None:
        """The process ends."""


def _answer(call: Call) -> Answer:
    try:
        return Answer(call.function(*call.arguments))
    except Exception as error:
        return Answer(error=error)


def _copy(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))
