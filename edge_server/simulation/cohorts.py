"""Devices of one tier and plan as cohorts, which train in common steps.

Which devices make a cohort follows from the order of submissions and requests for outcomes alone, and that is
an order of virtual time: results depend on the size, and neither on the machine nor on the number of workers.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from edge_client.data.dataset import LabelledData
from edge_server.config.config import Config
from edge_server.config.test_data import model_spec
from edge_server.simulation.client_work import ClientJob, CohortWorkers, Engine, Outcome
from edge_server.simulation.population import VirtualDevice
from schemas.messages import TrainTask, decode_task
from schemas.strategy import TrainingPlan

ALIKE = {"run", "round", "model", "spec", "personal", "trained", "adapters", "own", "own_model", "uplink"}
"""Fields of a task that are equal in a cohort."""


def cohort_kind(job: ClientJob) -> str | None:
    """What is equal in a cohort; None for a job that has none."""
    task = decode_task(job.task)
    if not isinstance(task, TrainTask) or task.statistics is not None or job.trainer != "torch":
        return None
    plan: TrainingPlan = task.training.model_copy(update={"seed": 0})
    return f"{job.memory} {plan.model_dump_json()} {task.model_dump_json(include=ALIKE)}"


MEMORY = 8 * 10**9  # bytes of a GPU that a cohort takes at most, as far as `cost_model` knows
MAX_SIZE = 256


def with_cohort_size(config: Config, data: LabelledData, population: Sequence[VirtualDevice]) -> Config:
    """The configuration with the number of devices that train in common steps; nothing else decides it."""
    settings = config.simulation
    if settings.cohort != "auto" or settings.engine != "local" or settings.device == "cpu":
        return config
    # Imported here: both import torch.
    from edge_client.models.build import build_model
    from edge_client.training.cost_model import network_cost

    spec = model_spec(config, data)
    cost = network_cost(build_model(spec), spec.input_shape)
    examples = config.training.copies * max(len(device.train) for device in population)
    each = cost.parameters + cost.training(config.training, examples=examples).total
    size = max(1, min(MAX_SIZE, MEMORY // each))
    return config.model_copy(update={"simulation": settings.model_copy(update={"cohort": size})})


@dataclass(eq=False)
class Waiting:
    """A submitted job and its cohort, which begins when it is full, or when an outcome is asked for."""

    job: ClientJob
    kind: str | None
    cohort: "Cohort | None" = None


@dataclass(eq=False)
class Cohort:
    """Jobs that were submitted together, and their outcomes, once they are done; `dropped` are cancelled."""

    members: Sequence[Waiting]
    handle: Any
    outcomes: Sequence[Outcome] | None = None
    dropped: set[int] = field(default_factory=set)


class CohortEngine(Engine[Waiting]):
    """Gives jobs to `workers` in cohorts of up to `size` devices."""

    def __init__(self, workers: CohortWorkers[Any], *, size: int) -> None:
        self._workers, self._size = workers, size
        self._waiting: dict[str, list[Waiting]] = {}

    def submit(self, job: ClientJob) -> Waiting:
        kind = cohort_kind(job)
        waiting = Waiting(job, kind)
        if kind is None:
            self._begin([waiting])
            return waiting
        group = self._waiting.setdefault(kind, [])
        group.append(waiting)
        if len(group) == self._size:
            self._begin(self._waiting.pop(kind))
        return waiting

    def result(self, handle: Waiting, *, timeout_s: float) -> Outcome | None:
        if handle.cohort is None:
            # The devices that have their tasks by now; all of them, so that no worker is idle.
            for group in self._waiting.values():
                self._begin(group)
            self._waiting.clear()
        cohort = handle.cohort
        assert cohort is not None
        if cohort.outcomes is None:
            cohort.outcomes = self._workers.results(cohort.handle, timeout_s=timeout_s)
        return None if cohort.outcomes is None else cohort.outcomes[cohort.members.index(handle)]

    def cancel(self, handle: Waiting) -> None:
        """Drop a job that has not begun; a cohort that has ends for the sake of its other members."""
        if handle.cohort is None:
            assert handle.kind is not None
            self._waiting[handle.kind].remove(handle)
            if not self._waiting[handle.kind]:
                del self._waiting[handle.kind]
            return
        cohort = handle.cohort
        cohort.dropped.add(cohort.members.index(handle))
        if len(cohort.dropped) == len(cohort.members):
            self._workers.cancel(cohort.handle)

    def stop(self) -> None:
        self._workers.stop()

    def close(self) -> None:
        self._waiting.clear()
        self._workers.close()

    def _begin(self, group: Sequence[Waiting]) -> None:
        cohort = Cohort(group, self._workers.submit_together([waiting.job for waiting in group]))
        for waiting in group:
            waiting.cohort = cohort
