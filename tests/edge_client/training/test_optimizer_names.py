"""The names that are checked without torch are those of the optimizers."""

from edge_client.training.epochs import OPTIMIZER_NAMES
from edge_client.training.optimizers import OPTIMIZERS


def test_the_names_are_those_of_the_optimizers() -> None:
    assert set(OPTIMIZER_NAMES) == set(OPTIMIZERS)
