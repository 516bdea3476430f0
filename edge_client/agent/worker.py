"""Runs tasks in a thread of their own, so that training never blocks the connection."""

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import ModuleType
from typing import Any

from edge_client.agent.service import Service
from edge_client.agent.session.events import Result, UpdateMasked, WorkDone, WorkFailed
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.agent.settings import TaskContext, TaskTrainers
from edge_client.data.local import LocalData
from edge_client.security.secure_aggregation.cohort import Membership
from edge_client.storage.atomic_files import DISK_FULL
from edge_client.system.hardware.memory import memory
from edge_client.system.process_memory import GivingBack, is_shortage
from edge_client.transport.broker_link import Inbox, LinkUp
from schemas.errors import EdgeError, PeerError, Reason
from schemas.messages import DeliverTask, Task, Update, encode_message

log = logging.getLogger(__name__)

Ended = WorkDone | UpdateMasked


@dataclass(frozen=True)
class Progress:
    """Event: an epoch has ended; `loss` is None if it is not finite."""

    task: Task
    epoch: int
    epochs: int
    loss: float | None


@dataclass(frozen=True)
class DataChanged:
    """Event: the device's data has changed."""

    data: LocalData


class Worker:
    """Does one task at a time; `stop` ends it within a batch and drops its result.

    From `hold` to `resume` training waits before its next batch, whatever the task.
    """

    def __init__(self, inbox: Inbox, trainers: TaskTrainers | None = None) -> None:
        self._inbox = inbox
        self._trainers = trainers or TaskTrainers()
        self.cancelled = threading.Event()
        self._held = False
        self._given_up = ""
        self._changed = threading.Condition()
        self.thread: threading.Thread | None = None
        self._one_at_a_time = threading.Lock()
        self._newest: LocalData | None = None

    def warm_up(self) -> None:
        """Import the trainer's libraries in idle time rather than with the first task."""
        threading.Thread(target=self._warm_up, name="warm-up", daemon=True).start()

    def _warm_up(self) -> None:
        with self._one_at_a_time:
            _import_work()
            self._trainers.warm_up(memory().free)

    def start(self, task: Task, context: TaskContext) -> None:
        """Begin a task, which ends in the event `WorkDone` or `WorkFailed`."""
        self.begin(task, partial(self._do, task, context))

    def look(self, context: TaskContext) -> None:
        """Begin to look whether the data has changed, which ends in the event `DataChanged` if it has."""
        threading.Thread(target=self._look, args=(context,), name="look", daemon=True).start()

    def _look(self, context: TaskContext) -> None:
        with self._one_at_a_time:
            self._with_current_data(context)

    def note_training(self, context: TaskContext, received_loss: float | None) -> None:
        """Note that the device has trained a model, which had this loss, on its current data."""
        self._take(context.feed.note_training(received_loss) if context.feed is not None else None)

    def mask(self, update: Update, membership: Membership, context: TaskContext) -> None:
        """Begin to mask an update, which ends in the event `UpdateMasked` or `WorkFailed`."""
        from edge_client.security.secure_aggregation.mask_update import mask_update

        masking = partial(mask_update, update, membership, context.store, chunk_bytes=context.chunk_bytes)
        self.begin(membership.task, lambda _: UpdateMasked(masking()))

    def begin(self, task: Task, job: Callable[[threading.Event], Ended]) -> None:
        self.cancelled, self._given_up = threading.Event(), ""
        self.thread = threading.Thread(
            target=self.run, args=(task, job, self.cancelled), name="worker", daemon=True
        )
        self.thread.start()

    def stop(self, *, wait_s: float = 0.0) -> None:
        """End the task, waiting for its thread at most `wait_s` seconds."""
        with self._changed:
            self.cancelled.set()
            self._changed.notify_all()
        if self.thread is not None and wait_s:
            self.thread.join(wait_s)

    def hold(self) -> None:
        self._held = True

    def resume(self) -> None:
        with self._changed:
            self._held = False
            self._changed.notify_all()

    def give_up_training(self, why: str) -> None:
        """End the wait of a delivery, which goes on without training."""
        with self._changed:
            self._given_up = why
            self._changed.notify_all()

    def should_stop(self, cancelled: threading.Event) -> bool:
        """Called before every batch; blocks while training is paused.

        Raises `TrainingGivenUp` after `give_up_training`.
        """
        if self._held:
            with self._changed:
                self._changed.wait_for(lambda: not self._held or self._given_up or cancelled.is_set())
        if self._given_up and not cancelled.is_set():
            from edge_client.training.results import TrainingGivenUp

            raise TrainingGivenUp(self._given_up)
        return cancelled.is_set()

    def run(self, task: Task, job: Callable[[threading.Event], Ended], cancelled: threading.Event) -> None:
        with self._one_at_a_time:
            event = self._outcome(task, job, cancelled)
        if not cancelled.is_set():
            self._inbox.put(event)

    def _do(self, task: Task, context: TaskContext, cancelled: threading.Event) -> Ended:
        result = self.work(task, self._with_current_data(context), cancelled)
        # A result too large to encode must fail here, where the failure is reported.
        encode_message(result)
        return WorkDone(result)

    def _with_current_data(self, context: TaskContext) -> TaskContext:
        """Reload changed data here, where reading blocks nothing else."""
        self._take(context.feed.reload_if_changed() if context.feed is not None else None)
        return context if self._newest is None else replace(context, data=self._newest)

    def _take(self, data: LocalData | None) -> None:
        if data is not None:
            self._newest = data
            self._inbox.put(DataChanged(data))

    def _outcome(
        self, task: Task, job: Callable[[threading.Event], Ended], cancelled: threading.Event
    ) -> Ended | WorkFailed:
        try:
            return job(cancelled)
        except PeerError as error:
            log.warning("round %d: declined (%s): %s", task.round, error.reason, error)
            return WorkFailed(task, Reason(error.reason), str(error))
        except (EdgeError, MemoryError) as error:
            reason = Reason.NO_MEMORY if is_shortage(error) else Reason.TASK_FAILED
            return WorkFailed(task, reason, f"{type(error).__name__}: {error}")
        except OSError as error:
            reason = Reason.NO_SPACE if error.errno in DISK_FULL else Reason.TASK_FAILED
            log.warning("round %d: the task failed: %s", task.round, error)
            return WorkFailed(task, reason, f"{type(error).__name__}: {error}")
        except Exception as error:
            if is_shortage(error):
                log.warning("round %d: no memory for the task: %s", task.round, error)
                return WorkFailed(task, Reason.NO_MEMORY, f"{type(error).__name__}: {error}")
            # A user's model or data may raise anything; only the task must fail.
            log.exception("round %d: the task failed", task.round)
            return WorkFailed(task, Reason.TASK_FAILED, f"{type(error).__name__}: {error}")

    def work(self, task: Task, context: TaskContext, cancelled: threading.Event) -> Result:
        task_runner: Any = _import_work()
        if isinstance(task, DeliverTask) or task.statistics is None:
            context = replace(context, trainer=self._trainers.of(task))
        hooks = {
            "on_epoch": lambda report: self._inbox.put(
                Progress(task, report.epoch, report.epochs, report.loss)
            ),
            "should_stop": partial(self.should_stop, cancelled),
        }
        if isinstance(task, DeliverTask):
            result: Result = task_runner.do_delivery(task, context, **hooks)
        else:
            result = task_runner.do_training(task, context, **hooks)
        return result


def _import_work() -> ModuleType:
    from edge_client.agent import task_runner

    return task_runner


WARM_UP_AFTER_S = 3.0
"""Seconds from connecting to the trainer's import: on one machine, a whole federation may be starting."""


class Housekeeping(Service):
    """Warms the worker up after connecting and returns freed memory to the system."""

    def __init__(self, worker: Worker) -> None:
        self._worker, self._freed = worker, GivingBack()
        self.warm_up_at = math.inf

    def on_connected(self, up: LinkUp, now: float) -> None:
        self.warm_up_at = now + WARM_UP_AFTER_S

    def tick(self, now: float, session: Session) -> None:
        if now >= self.warm_up_at:
            self.warm_up_at = math.inf
            self._worker.warm_up()
        self._freed.turn(now, busy=session.phase is not SessionPhase.IDLE)
