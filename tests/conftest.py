"""For all tests, and for the processes that they start."""

from __future__ import annotations

import os
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
    "tests/simulation/test_ray",
    "tests/integration/",
    "tests/identity/test_enrolled",
)
"""They begin first, lest all wait for one of them in the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long tests in front; the order is otherwise as it was."""
    places = {name: place for place, name in enumerate(LONG)}
    items.sort(
        key=lambda item: next((at for name, at in places.items() if item.nodeid.startswith(name)), len(LONG))
    )
