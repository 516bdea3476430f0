"""The processes of the local engine."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edge_client.data.sources import load_source
from edge_server.config.run_sections import ENGINE_NAMES, SimulationSettings
from edge_server.simulation.client_work import ClientJob, EngineError, WorkSetup
from edge_server.simulation.engines import ENGINES, prepare_engine
from edge_server.simulation.local_engine import LocalEngine, OwnProcessEngine
from edge_server.simulation.population import DataShares, SharedData
from schemas.values import Preprocessing
from tests.slow import mark_slow

DEADLINE_S = 120


def setup(folder: Path) -> WorkSetup:
    """A run whose data is missing."""
    return WorkSetup(SharedData(folder, {}, Preprocessing()), folder / "blobs", folder / "clients", "mlp")


BEGUN_AND_STOPPED = """
import os, signal
from multiprocessing import forkserver
from edge_server.config.run_sections import ENGINE_NAMES
from edge_server.simulation.engines import ENGINES
from edge_server.simulation import local_engine
local_engine.PRELOADED = ["json"]
# Needed if the tests run in the background of a shell, which ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    local_engine.warm_up()
    os.killpg(0, signal.SIGINT)
    signal.pause()
except KeyboardInterrupt:
    made = forkserver._forkserver
    os.close(made._forkserver_alive_fd)
    print("stopped;", os.waitpid(made._forkserver_pid, 0)[1])
"""


@mark_slow
def test_ctrl_c_during_process_creation_stops_only_the_parent() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BEGUN_AND_STOPPED],
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=120,
    )

    assert (done.stdout, done.stderr) == ("stopped; 0\n", "")


def test_every_engine_that_a_file_may_name_exists():
    assert tuple(ENGINES) == ENGINE_NAMES


def test_workers_share_no_lock_with_a_process_that_ctrl_c_may_interrupt(tmp_path: Path) -> None:
    engine: Any = LocalEngine(setup(tmp_path), workers=1)
    engine.close()
    assert (engine._over.value, hasattr(engine._over, "get_lock")) == (1, False)


def test_the_error_says_how_a_worker_ended(tmp_path: Path) -> None:
    for end, words in (
        ((os._exit, 3), "has ended with exit code 3: see its messages"),
        ((signal.raise_signal, signal.SIGKILL), r"was killed \(SIGKILL\): .*: use fewer with workers=N"),
    ):
        engine = LocalEngine(setup(tmp_path), workers=1)
        try:
            handle: Any = engine.pool.submit(*end)
            engine.processes.update(engine.pool._processes)
            with pytest.raises(EngineError, match=f"a worker process {words}$"):
                engine.result(handle, timeout_s=DEADLINE_S)
        finally:
            engine.close()


def test_a_worker_that_cannot_begin_raises_the_cause(tmp_path: Path) -> None:
    engine = LocalEngine(setup(tmp_path), workers=1)
    try:
        with pytest.raises(FileNotFoundError, match=r"images\.npy"):
            engine.result(engine.submit(ClientJob("a", "{}")), timeout_s=DEADLINE_S)
    finally:
        engine.close()


def test_one_worker_is_this_process_with_torch_as_it_was(tmp_path: Path) -> None:
    settings = SimulationSettings(workers=1)
    empty = DataShares({}, load_source("digits").subset(()), np.empty(0, np.int64))
    before = torch.get_num_threads()
    engine = prepare_engine(settings)(replace(setup(tmp_path), data=empty))
    assert isinstance(engine, OwnProcessEngine)
    outcome = engine.result(engine.submit(ClientJob("a", "{}")), timeout_s=0)
    assert outcome is not None
    assert outcome.answer is None
    assert torch.get_num_threads() == before
    engine.stop()
    assert engine.result(engine.submit(ClientJob("a", "{}")), timeout_s=0) is None
