"""The processes of the local engine."""

import subprocess
import sys

from edge_server.config.sections import ENGINE_NAMES
from edge_server.simulation.engines import ENGINES

BEGUN_AND_STOPPED = """
import os, signal
from multiprocessing import forkserver
from edge_server.config.sections import ENGINE_NAMES
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
