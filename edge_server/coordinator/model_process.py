"""A process that tests models on the server's data, or draws their graphs, while the server goes on.

Jobs and results are pickled over a pipe between this process and its child, which no other user can reach.
The model itself is read from the run folder.
"""

import contextlib
import logging
import signal
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from edge_client.data.dataset import LabelledData
from edge_client.inference.export.metadata import ExportRefused
from edge_client.system.logging.setup import begin_inherited_log
from edge_client.system.process_memory import keep_freed_memory
from edge_client.training.results import Evaluation
from edge_server.coordinator import worker_processes
from schemas.errors import EdgeError
from schemas.submodel import ChannelMap, SubModelSpec
from schemas.tensors.arrays import Arrays
from schemas.tensors.files import FileGroups
from schemas.values import ModelSpec

if TYPE_CHECKING:
    from edge_server.coordinator.global_model import GlobalModel

T = TypeVar("T")
END_S = 5.0
PRELOADED = ["edge_server.coordinator.model_process", "edge_server.coordinator.global_model"]
"""Modules that the fork server imports for testing processes."""


class ProcessLost(EdgeError):
    """A testing process has died, or could not test; the test can be repeated elsewhere."""


@dataclass(frozen=True, eq=False)
class ModelSetup:
    """What a process needs before its first job: the network with its fixed state, and examples of tests.

    No device trains the arrays `still`.
    """

    spec: ModelSpec
    channel_map: ChannelMap
    fixed: Arrays
    data: LabelledData | None = None
    still: frozenset[str] = frozenset()


@dataclass(frozen=True, eq=False)
class EvaluationJob:
    """Sub-models by number, to be cut from the model in a file; some have arrays of their `own` instead."""

    model: Path
    specs: Mapping[int, SubModelSpec]
    own: Mapping[int, Arrays] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class GraphJob:
    """Sub-models of the model in a file, whose graphs are wanted."""

    model: Path
    specs: tuple[SubModelSpec, ...]


@dataclass(frozen=True)
class Drawn:
    """The graphs that could be drawn; `refused` says why one cannot."""

    graphs: tuple[bytes, ...]
    refused: str = ""


@dataclass(frozen=True)
class Evaluated:
    """The evaluations by number, and the seconds that they took."""

    found: Mapping[int, Evaluation]
    seconds: float


class ModelProcess:
    """One such process, started with its first job; it has a thread that waits for it."""

    def __init__(self, setup: ModelSetup) -> None:
        self._context, self._setup = worker_processes.worker_context(PRELOADED), setup
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="model-process")
        self._process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._closed = False

    def test(self, job: EvaluationJob) -> Future[Evaluated]:
        """Begin a test after the earlier ones; its future raises `ProcessLost` if the process fails."""
        return self._thread.submit(self._ask, job, Evaluated)

    def draw(self, job: GraphJob) -> Future[Drawn]:
        """Begin to draw graphs after the earlier jobs; errors as in `test`."""
        return self._thread.submit(self._ask, job, Drawn)

    @property
    def pid(self) -> int | None:
        """The process; None before the first job."""
        return None if self._process is None else self._process.pid

    def close(self) -> None:
        """End the process, whatever it does."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)
        if self._process is not None:
            self._process.kill()
        self._thread.shutdown(wait=True)
        if self._process is not None:
            self._process.join()

    def _ask(self, job: EvaluationJob | GraphJob, wanted: type[T]) -> T:
        try:
            connection = self._ensure_connection()
            connection.send(job)
            answer = connection.recv()
        except (EOFError, OSError) as error:
            raise ProcessLost(f"the process that tests the model {self._how_it_ended()}") from error
        if not isinstance(answer, wanted):
            raise ProcessLost(f"the process that tests the model: {answer}")
        return answer

    def _how_it_ended(self) -> str:
        if self._process is None or self._closed:
            return "is not there"
        self._process.join(END_S)
        return worker_processes.ending(self._process.exitcode)

    def _ensure_connection(self) -> Connection:
        if self._closed:
            raise ProcessLost("the run is over")
        if self._connection is None:
            worker_processes.start_fork_server(self._context)
            ours, theirs = self._context.Pipe()
            process = self._context.Process(  # type: ignore[attr-defined]
                target=_serve, args=(theirs, self._setup), name="model-process", daemon=True
            )
            with worker_processes.interrupts_blocked():
                process.start()
            theirs.close()
            self._process, self._connection = process, ours
            if self._closed:
                process.kill()
        return self._connection


def _serve(connection: Connection, setup: ModelSetup) -> None:
    """Answer jobs until the parent closes the pipe; Ctrl-C is the parent's to handle."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    keep_freed_memory()
    worker_processes.end_with_parent()
    begin_inherited_log(logging.WARNING)
    bench = ModelBench(setup)
    with contextlib.suppress(EOFError, OSError):
        while True:
            connection.send(bench.answer(connection.recv()))


class ModelBench:
    """The network and its test data in a testing process; torch has one thread."""

    def __init__(self, setup: ModelSetup) -> None:
        import torch

        torch.set_num_threads(1)
        self._setup, self._data = setup, setup.data
        self._inputs = setup.data.inputs() if setup.data is not None else None

    def answer(self, job: EvaluationJob | GraphJob) -> Evaluated | Drawn | str:
        """The result of a job; if it fails, the reason."""
        try:
            return self._evaluate(job) if isinstance(job, EvaluationJob) else self._draw(job)
        except Exception as error:
            # A user's own network may raise anything.
            return f"{type(error).__name__}: {error}"

    def _evaluate(self, job: EvaluationJob) -> Evaluated:
        assert self._data is not None
        assert self._inputs is not None
        began = time.monotonic()
        network, params = self._network, _parameters(job.model)
        found = network.test_all(
            job.specs, lambda number: {**params, **job.own.get(number, {})}, self._data, self._inputs
        )
        return Evaluated(found, time.monotonic() - began)

    def _draw(self, job: GraphJob) -> Drawn:
        network, params = self._network, _parameters(job.model)
        graphs: list[bytes] = []
        try:
            for spec in job.specs:
                graphs.append(network.draw(params, spec))
        except ExportRefused as error:
            return Drawn(tuple(dict.fromkeys(graphs)), str(error))
        return Drawn(tuple(dict.fromkeys(graphs)))

    @cached_property
    def _network(self) -> "GlobalModel":
        from edge_client.models.build import build_blank
        from edge_client.models.fixed_state import fill_fixed
        from edge_server.coordinator.global_model import GlobalModel

        setup = self._setup
        module = build_blank(setup.spec)
        fill_fixed(module, setup.fixed)
        return GlobalModel(module, setup.spec, setup.channel_map, still=setup.still)


def _parameters(model: Path) -> Arrays:
    arrays = FileGroups(model)["model"]
    return {name: np.array(arrays[name]) for name in arrays}
