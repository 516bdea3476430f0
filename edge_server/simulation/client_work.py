"""A worker's jobs: a real device's work on a virtual device's share of the mapped data.

Equal jobs give equal outcomes in every engine. torch is imported late, in the worker.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from edge_client.agent.settings import TaskContext
from edge_client.data.drift_alarm import DriftAlarm
from edge_client.storage.blob_store import BlobStore
from edge_client.storage.private_state import PrivateState
from edge_client.system.hardware.sysfs import ROOT
from edge_client.system.logging.formatters import about
from edge_client.training.choice import make_trainer
from edge_server.simulation import clock, population
from schemas.errors import EdgeError, PeerError, Reason
from schemas.messages import DeliverTask, Delivery, Update, decode_task, encode_message
from schemas.values import TrainerName

# The interface of engines, which run the devices' jobs.

Handle = TypeVar("Handle")


class EngineError(EdgeError):
    """The engine failed; the simulation cannot continue."""


@dataclass(frozen=True)
class ClientJob:
    """One device's task as JSON, and what trains on it; the arrays are in the shared blob store.

    `memory` are the bytes that training finds free, by default those of this machine. Of data that grows,
    `examples` have come, and `alarm` is about them.
    """

    device: str
    task: str
    trainer: TrainerName = "torch"
    memory: int | None = None
    examples: population.Counts | None = None
    alarm: DriftAlarm | None = None


@dataclass(frozen=True)
class Outcome:
    """The result of a job: the device's answer as JSON, or the reason why there is none."""

    answer: str | None
    reason: Reason = Reason.TASK_FAILED
    detail: str = ""


class Engine(Protocol[Handle]):
    """Runs several jobs at once; all calls come from one thread."""

    def submit(self, job: ClientJob) -> Handle:
        """Start the job as soon as a worker is free."""

    def result(self, handle: Handle, *, timeout_s: float) -> Outcome | None:
        """The job's outcome; None after `timeout_s` seconds. Raises `EngineError`."""

    def cancel(self, handle: Handle) -> None:
        """Drop a job whose outcome is no longer needed."""

    def stop(self) -> None:
        """The run is to end: hold nobody up. May be called from a signal handler."""

    def close(self) -> None:
        """End all workers and drop unfinished jobs."""


class CohortWorkers(Engine[Handle], Protocol[Handle]):
    """An engine that can also do several jobs in one go, whose trainings may then be done in common steps."""

    def submit_together(self, jobs: Sequence[ClientJob]) -> Handle:
        """As `submit`, for all of them."""

    def results(self, handle: Handle, *, timeout_s: float) -> Sequence[Outcome] | None:
        """As `result`, of jobs that were submitted together, in their order."""


if TYPE_CHECKING:
    from edge_client.training.requests import Work
    from edge_client.training.trainer import Trainer

log = logging.getLogger(__name__)

KEPT_MODULES = 8  # Number of built sub-models that a worker caches: more than the usual number of tiers
PLAIN_STEPS = 300  # Before a step is recorded: a recording pays after 90 to 780 steps (tests/benchmarks)


@dataclass(frozen=True)
class WorkSetup:
    """What a worker needs before its first job; the same for all jobs of a run.

    It gets up to `cohort` jobs at once.
    """

    data: population.SharedData | population.DataShares
    blobs: Path
    clients: Path
    model: str
    accelerator: str = "cpu"
    cohort: int = 1


def device_folder(clients: Path, device: str) -> Path:
    return clients / device


def private_state(clients: Path, device: str) -> PrivateState:
    """The state that a device keeps between rounds and does not send."""
    return PrivateState(device_folder(clients, device) / "private", durable=False)


def _trainer(name: TrainerName, accelerator: str) -> "Trainer":
    if name == "onnx":
        return make_trainer("onnx", threads=1)
    from edge_client.pruning.submodel_cache import SubModelCache
    from edge_client.training.cohort.jobs import CohortTrainer
    from edge_client.training.step_capture import Recorder

    sub_models = SubModelCache(KEPT_MODULES, device=accelerator)
    return CohortTrainer(sub_models=sub_models, recorder=Recorder(after=PLAIN_STEPS))


class ClientWork:
    """Executes the jobs of one worker: torch in one thread, mapped data, cached sub-models.

    `make` gives other trainers than the worker's own.
    """

    def __init__(self, setup: WorkSetup, make: "Callable[[TrainerName], Trainer] | None" = None) -> None:
        import torch

        from edge_client.training.training_device import TrainingDevice

        torch.set_num_threads(1)
        TrainingDevice(setup.accelerator).repeat_bits()
        self._setup = setup
        self._data = setup.data.open_shares() if isinstance(setup.data, population.SharedData) else setup.data
        self._store = BlobStore(setup.blobs, durable=False)
        self._trainer = cache(make or partial(_trainer, accelerator=setup.accelerator))

    def do(self, job: ClientJob, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
        """Do a job; an exception becomes its outcome, as on a device."""
        try:
            return Outcome(self._answer(job, should_stop))
        except Exception as error:
            return _failure(job, error)

    def do_together(
        self, jobs: Sequence[ClientJob], should_stop: Callable[[], bool] = lambda: False
    ) -> tuple[Outcome, ...]:
        """Do jobs with their trainings in common steps, where these are alike; one that fails fails alone."""
        from edge_client.training.requests import do_together

        results = do_together([self._work(job, should_stop) for job in jobs])
        return tuple(
            _failure(job, result)
            if isinstance(result, Exception)
            else Outcome(encode_message(result).decode())
            for job, result in zip(jobs, results, strict=True)
        )

    def _answer(self, job: ClientJob, should_stop: Callable[[], bool]) -> str:
        from edge_client.training.requests import do_alone

        return encode_message(do_alone(self._work(job, should_stop))).decode()

    def _work(self, job: ClientJob, should_stop: Callable[[], bool]) -> "Work[Update | Delivery]":
        from edge_client.agent.task_runner import do_delivery, training_of

        task = decode_task(job.task)
        about(federation=task.federation, run=task.run, round=task.round)
        context = self._context(job)
        if isinstance(task, DeliverTask):
            # The time that is left is virtual, and the work's is not.
            task = task.model_copy(update={"deadline_s": None})
            return do_delivery(task, context, should_stop=should_stop)
        return (yield from training_of(task, context, on_epoch=lambda _: None, should_stop=should_stop))

    def _context(self, job: ClientJob) -> TaskContext:
        clients, device = self._setup.clients, job.device
        return TaskContext(
            device,
            self._store,
            replace(self._data.of(device, job.examples), alarm=job.alarm),
            device_folder(clients, device) / "models",
            model_code=frozenset({self._setup.model}),
            private=private_state(clients, device),
            board=ROOT
            if job.memory is None
            else clock.board_files(self._setup.blobs.parent / "boards", job.memory),
            trainer=self._trainer(job.trainer),
            features=self._setup.blobs.parent / "features" / device,
        )


def _failure(job: ClientJob, error: Exception) -> Outcome:
    """The outcome of a job that this error has ended."""
    if isinstance(error, PeerError):
        return Outcome(None, Reason(error.reason), str(error))
    if not isinstance(error, EdgeError | MemoryError):
        # A user's own model or data may raise anything; only the task fails.
        log.error("%s: the task failed", job.device, exc_info=error, extra={"device": job.device})
    return Outcome(None, detail=f"{type(error).__name__}: {error}")
