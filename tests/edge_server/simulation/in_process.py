"""An engine without processes: each job is done where its outcome is requested.

Starting a worker process takes longer than the few rounds of a test. Tests of the processes themselves use
those.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_client.training.choice import make_trainer
from edge_client.training.trainer import Trainer
from edge_server.simulation import simulator
from edge_server.simulation.client_work import ClientJob, ClientWork, Engine, Outcome, WorkSetup
from schemas.values import TrainerName


class InProcess(Engine[ClientJob]):
    """Does each job when its outcome is requested."""

    def __init__(self, setup: WorkSetup) -> None:
        self.bench, self.store = ClientWork(setup, make=_trainer), BlobStore(setup.blobs, durable=False)

    def submit(self, job: ClientJob) -> ClientJob:
        return job

    def result(self, handle: ClientJob, *, timeout_s: float) -> Outcome | None:
        return self.bench.do(handle)

    def cancel(self, handle: ClientJob) -> None:
        pass

    def stop(self) -> None:
        pass

    def close(self) -> None:
        pass


@contextmanager
def in_process(engine: Callable[[WorkSetup], Engine[Any]] = InProcess) -> Iterator[None]:
    """Simulations inside have this engine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulator, "prepare_engine", lambda settings: engine)
        yield


def _trainer(name: TrainerName) -> Trainer:
    if name != "torch":
        return make_trainer(name, threads=1)
    # Imports torch.
    from tests.edge_server.simulation.remembered import RememberingTrainer

    return RememberingTrainer()
