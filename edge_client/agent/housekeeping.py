"""Chores of an idle device: import torch before the first task, return memory after the last."""

from __future__ import annotations

import math

from edge_client.agent.service import Service
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.worker import Worker
from edge_client.system.process_memory import GivingBack
from edge_client.transport.link_events import LinkUp

WARM_UP_AFTER_S = 3.0
"""Seconds from connecting to importing torch: on one machine, a whole federation may be starting."""


class Housekeeping(Service):
    """Warms the worker up after connecting and returns freed memory to the system."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._freed = worker, GivingBack()
        self.warm_up_at = math.inf

    def connected(self, up: LinkUp, now: float) -> None:
        self.warm_up_at = now + WARM_UP_AFTER_S

    def tick(self, now: float, session: Session) -> None:
        if now >= self.warm_up_at:
            self.warm_up_at = math.inf
            self._worker.warm_up()
        self._freed.turn(now, busy=session.phase is not SessionPhase.IDLE)
