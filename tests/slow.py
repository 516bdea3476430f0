"""Slow variants of tests: `make test` runs a quick one of each kind, `make test-slow` runs the others."""

import os
from typing import Any

import pytest

ALL = os.environ.get("SLOW_TESTS") == "1"
SLOW = [pytest.mark.slow, pytest.mark.skipif(not ALL, reason="run by make test-slow")]
"""Marks of a slow test, or of a whole module: `pytestmark = SLOW`."""


def slow(*values: Any, id: str | None = None) -> Any:
    """A parameter set of a slow variant."""
    return pytest.param(*values, marks=SLOW, id=id)


def mark_slow(test: Any) -> Any:
    """Decorator of a test that is slow as a whole."""
    for mark in SLOW:
        test = mark(test)
    return test
