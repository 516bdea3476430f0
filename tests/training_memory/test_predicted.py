"""The cost model against what training really takes: a few trainings, and all in `make test-memory`."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from edge_client.models.registry import MODELS
from tests.training_memory.measured import SHAPES, every_case

ALL = os.environ.get("TRAINING_MEMORY") == "all"
FEW = ["two-nn/5/sgd/32"]
CASES = [f"{one.model}/{one.tier}/{one.optimizer}/{one.batch}" for one in every_case()] if ALL else FEW


def test_every_shipped_network_is_among_those_that_are_measured() -> None:
    assert SHAPES.keys() == MODELS.keys()


@pytest.mark.timeout(3600)
def test_training_takes_what_is_predicted_within_a_fifth() -> None:
    # The cost model is that of one thread: each has working memory of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training_memory", *CASES]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    told = [json.loads(line) for line in child.stdout.splitlines()]
    assert len(told) == len(CASES)
    ratios = {"/".join(map(str, one["case"].values())): one["predicted"] / one["measured"] for one in told}
    assert {case: ratio for case, ratio in ratios.items() if abs(ratio - 1) > allowed(case)} == {}


def allowed(case: str) -> float:
    """A fifth with the usual batch; with others, for which the allocator does other things, more."""
    return 0.2 if case.endswith("/32") else 0.3
