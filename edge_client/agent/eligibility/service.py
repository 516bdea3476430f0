"""Applies the eligibility rules to the agent: holds training, gives tasks back, reports the verdict."""

import logging

from edge_client.agent.announcer import Announcer
from edge_client.agent.eligibility.machine import GiveBack, Hold, ReportVerdict, Resume
from edge_client.agent.eligibility.monitor import EligibilityMonitor
from edge_client.agent.service import Service
from edge_client.agent.session.events import GivenBack
from edge_client.agent.session.state import Session
from edge_client.agent.session_runner import SessionRunner
from edge_client.agent.worker import Worker
from schemas.messages import DeliverTask

log = logging.getLogger(__name__)


class EligibilityService(Service):
    def __init__(
        self, monitor: EligibilityMonitor, worker: Worker, runner: SessionRunner, announcer: Announcer
    ) -> None:
        self._monitor, self._worker = monitor, worker
        self._runner, self._announcer = runner, announcer

    def tick(self, now: float, session: Session) -> None:
        task = session.task
        at_work = task is not None and task.plan is not None and session.result is None
        for command in self._monitor.check(now, at_work=at_work):
            match command:
                case Hold():
                    self._worker.hold()
                case Resume():
                    self._worker.resume()
                case GiveBack(detail) if isinstance(task, DeliverTask):
                    self._worker.give_up_training(detail)
                case GiveBack(detail):
                    log.warning("the task is given back: %s", detail)
                    self._runner.step(GivenBack(detail))
                case ReportVerdict(verdict):
                    log.warning("%s%s", verdict.eligibility, f": {verdict.detail}" if verdict.detail else "")
                    self._announcer.announce()
