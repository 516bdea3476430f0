"""Settings for all tests and for the processes that they start."""

import gc
import logging
import os
import shlex
import sys
from collections.abc import Generator
from itertools import islice
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings

from tests.changes import change_modules
from tests.forked.child import UNSYNCED
from tests.forked.connection import forked_python, start_server
from tests.forked.fork_servers import fork_fork_servers
from tests.unsynced import sync_nothing

# Must be set before torch is imported. With networks this small a second thread costs more than it saves,
# ten times as much on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# An exported graph is computed once for all test processes, because an export takes many seconds.
os.environ.setdefault("EDGE_GRAPHS", str(Path(__file__).parents[1] / ".pytest_cache" / "graphs"))
# A service folder of this user must neither be read nor written.
os.environ["EDGE_SERVICE"] = str(Path(__file__).parents[1] / ".pytest_cache" / "no-service")
# Hundreds of processes that tests start would each compile the packages again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

sync_nothing()
os.environ[UNSYNCED] = "1"

# A server that ends in a test would let the collector look through all modules and tests again.
_freeze = gc.freeze
gc.freeze = gc.unfreeze = lambda: None  # type: ignore[method-assign]


# How long a busy machine takes to draw examples, or to run one, says nothing about the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")


def set_level(logger: logging.Logger, level: int | str) -> None:
    """Set another level: a call empties the cache of every logger, and pytest makes twelve per test."""
    if logging._checkLevel(level) != logger.level:  # type: ignore[attr-defined]
        _set_level(logger, level)


_set_level = logging.Logger.setLevel
logging.Logger.setLevel = set_level  # type: ignore[method-assign]
logging.getLogger().setLevel("INFO")


def pytest_configure(config: pytest.Config) -> None:
    """Fork the processes of pytest-xdist, and what they start, from one process that has imported torch."""
    fork_fork_servers()
    if getattr(config.option, "tx", None) and not hasattr(config, "workerinput"):
        start_server(tests=True)
        forked = f"popen//python={shlex.join(forked_python())}"
        config.option.tx = [forked if spec == "popen" else spec for spec in config.option.tx]


LONG = (
    "tests/chaos/test_chaos",
    "tests/browser/test_live_run",
    "tests/hostile/",
    "tests/test_packaging",
    "tests/edge_server/simulation/test_ray",
    "tests/fleet/",
    "tests/integration/",
    "tests/edge_server/security/identity/test_enrolled",
)
"""Prefixes of the long tests, which start first, so that no process waits for one of them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests first and keep the order otherwise.

    Each of several processes starts with an equal part of the list. The long files, whose tests mostly wait,
    are distributed over half of the parts: the other processes keep the processor busy meanwhile.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    places = {name: place for place, name in enumerate(LONG)}
    files: dict[str, tuple[int, list[pytest.Item]]] = {}
    rest = []
    for item in items:
        if not (test := item.nodeid).startswith(LONG):
            rest.append(item)
            continue
        place = next(index for name, index in places.items() if test.startswith(name))
        files.setdefault(test.partition("::")[0], (place, []))[1].append(item)
    parts: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for turn, (_, tests) in enumerate(sorted(files.values(), key=lambda placed: placed[0])):
        parts[turn % max(1, processes // 2)] += tests
    total, left = len(items), iter(rest)
    for index, part in enumerate(parts):
        size = total * (index + 1) // processes - total * index // processes
        part += islice(left, max(0, size - len(part)))
    items[:] = [item for part in parts for item in part] + list(left)


WORTH_REPORTING_S = 0.005
"""Duration below which `--durations` leaves out a phase of a test."""


def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Let a process of pytest-xdist report setup and teardown only if there is something to say.

    A message takes as long as many a test.
    """
    if not hasattr(item.config, "workerinput"):
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed or report.duration >= WORTH_REPORTING_S:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


MANY_MODULES = 100
"""New modules after which their objects are excluded from garbage collection."""
_known_modules = 0


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the collected tests and their imports from garbage collection, since they live to the end.

    The model service collects garbage after each switch of models, which took 1.5 s with them included.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        change_modules()
        _exclude_from_collection()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, object, object]:
    """Exclude late imports too: torch's exporter alone makes each collection 0.2 s longer."""
    done = yield
    if len(sys.modules) >= _known_modules + MANY_MODULES:
        gc.collect()
        _exclude_from_collection()
    return done


def _exclude_from_collection() -> None:
    global _known_modules
    _freeze()
    _known_modules = len(sys.modules)
