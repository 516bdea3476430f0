"""The cost model against what training really takes: a few trainings, and all in `make test-memory`."""

import os

import pytest

from edge_client.models.registry import MODELS
from tests.training_memory.__main__ import table
from tests.training_memory.measured import SHAPES, Case, Growth, every_case
from tests.training_memory.repeated import repeated, word

ALL = os.environ.get("TRAINING_MEMORY") == "all"
FEW = [Case("two-nn", 5)]


def test_every_shipped_network_is_among_those_that_are_measured() -> None:
    assert SHAPES.keys() == MODELS.keys()


@pytest.mark.timeout(3600)
def test_training_takes_what_is_predicted_within_a_fifth() -> None:
    found = repeated(every_case(), doubted=beyond) if ALL else repeated(FEW, runs=1)
    print("\n".join(table(found)))
    assert {word(case.case): case.ratio for case in found if beyond(case)} == {}


def beyond(one: Growth) -> bool:
    """Whether it is off by more than a fifth; batches of other sizes, with which the allocator does other
    things, are allowed more."""
    return abs(one.ratio - 1) > (0.2 if one.case.batch == 32 else 0.3)
