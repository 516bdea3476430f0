"""The estimate of memory without torch is within a fifth; more in `python -m tests.step_graphs.memory`."""

import pytest

from tests.slow import mark_slow
from tests.step_graphs.memory import grown


@mark_slow
def test_estimated_memory_is_within_a_fifth_of_measured_memory() -> None:
    predicted, measured = grown("two-nn", 5, "adam")
    assert predicted == pytest.approx(measured, rel=0.2)
