"""Looks at data that may grow while the device has nothing else to do, so that the server hears of it."""

import math

from edge_client.agent.service import Service
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.session_runner import SessionRunner
from edge_client.agent.worker import Worker
from edge_client.transport.link_events import LinkUp


class DataWatch(Service):
    """Asks the worker to look every `every_s` seconds; 0 never asks."""

    def __init__(self, worker: Worker, runner: SessionRunner, *, every_s: float) -> None:
        self._worker, self._runner = worker, runner
        self._every_s = every_s or math.inf
        self._next = math.inf

    def connected(self, up: LinkUp, now: float) -> None:
        self._next = min(self._next, now + self._every_s)

    def tick(self, now: float, session: Session) -> None:
        if now >= self._next and session.phase is SessionPhase.IDLE:
            self._next = now + self._every_s
            self._worker.look(self._runner.context)
