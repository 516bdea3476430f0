"""For all tests, and for the processes that they start."""

from __future__ import annotations

import gc
import os
from collections.abc import Generator
from itertools import islice
from pathlib import Path

import pytest

# Before torch is imported. The networks here are so small that a second thread costs more than it brings,
# and on a busy machine ten times as much.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A network is drawn once for all tests and their processes, not in each of them for many seconds.
os.environ.setdefault("EDGE_GRAPHS", str(Path(__file__).parents[1] / ".pytest_cache" / "graphs"))

LONG = (
    "tests/chaos/test_chaos",
    "tests/browser/test_live_run",
    "tests/hostile/",
    "tests/test_packaging",
    "tests/edge_server/simulation/test_ray",
    "tests/integration/",
    "tests/edge_server/security/identity/test_enrolled",
)
"""They begin first, lest all wait for one of them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests in front; the order is otherwise as it was.

    With several processes each begins with an equal run of the list: the long files are dealt out to their
    fronts in turn, lest the first process have all of them.
    """
    processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    places = {name: place for place, name in enumerate(LONG)}
    files: dict[str, tuple[int, list[pytest.Item]]] = {}
    rest = []
    for item in items:
        place = next((at for name, at in places.items() if item.nodeid.startswith(name)), None)
        if place is None:
            rest.append(item)
        else:
            files.setdefault(item.nodeid.partition("::")[0], (place, []))[1].append(item)
    hands: list[list[pytest.Item]] = [[] for _ in range(processes)]
    for turn, (_, tests) in enumerate(sorted(files.values(), key=lambda one: one[0])):
        hands[turn % processes] += tests
    total, left = len(items), iter(rest)
    for index, hand in enumerate(hands):
        size = total * (index + 1) // processes - total * index // processes
        hand += islice(left, max(0, size - len(hand)))
    items[:] = [item for hand in hands for item in hand] + list(left)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and what they import stay to the end: garbage is looked for among the rest.

    The service collects garbage after each exchange of models, which took a second and a half with them.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
