"""A small network in onnxruntime and in torch, with one graph; all networks in `make test-graphs`."""

import pytest

from edge_client.models.registry import MODELS
from edge_client.training.step_graphs.running.objectives import DRAWN_INSIDE
from tests.step_graphs.cases import OBJECTIVES, OPTIMIZERS, Case, every_case
from tests.step_graphs.parity import compared


def test_every_shipped_network_is_compared() -> None:
    assert {case.model for case in every_case()} == set(MODELS)


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name not in DRAWN_INSIDE])
def test_objectives_give_torchs_parameters(objective: str) -> None:
    found = compared(Case("mlp", 1, objective))
    assert found.is_explained, found


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_optimizers_give_torchs_parameters(optimizer: str) -> None:
    found = compared(Case("mlp", 1, "plain", optimizer))
    assert found.is_explained, found
