"""The mean over the holders of each coordinate."""

import numpy as np
import pytest

from edge_server.strategy.aggregation.means import mean_over_holders
from edge_server.strategy.aggregation.updates import to_global
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, arrays, update


def constant(value: float) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, value) for name, array in arrays(0).items()}


def held(client: str, value: float, kept) -> object:
    return to_global(update(client, constant(value), spec=SubModelSpec(kept={"hidden": kept})), MAP)


def test_each_coordinate_is_the_mean_over_its_holders():
    change = mean_over_holders([held("a", 1, 2), held("b", 5, 4)], np.array([0.25, 0.75]))
    # Channels 0 and 1: 0.25 * 1 + 0.75 * 5 = 4. Channels 2 and 3: only b, 5. Channel 4: nobody.
    assert change["hidden.bias"].tolist() == [4, 4, 5, 5, 0]
    assert change["out.weight"][0].tolist() == [4, 4, 5, 5, 0]
    assert change["out.bias"].tolist() == [4, 4]


def test_sub_models_need_not_be_prefixes():
    change = mean_over_holders([held("a", 1, (4, 0)), held("b", 3, (0, 2))], np.array([0.5, 0.5]))
    assert change["hidden.bias"].tolist() == [2, 0, 3, 0, 1]


def test_a_coordinate_held_only_by_clients_without_weight_does_not_change():
    change = mean_over_holders([held("a", 1, 2), held("b", 9, 5)], np.array([1.0, 0.0]))
    assert change["hidden.bias"].tolist() == [1, 1, 0, 0, 0]


def test_small_changes_are_not_lost_next_to_large_ones():
    # In single precision 1e8 + 1 is 1e8; the mean of 1e8, 1 and -1e8 is 1/3.
    sent = [held("a", 1e8, 5), held("b", 1, 5), held("c", -1e8, 5)]
    change = mean_over_holders(sent, np.full(3, 1 / 3))
    assert change["out.bias"] == pytest.approx([1 / 3, 1 / 3], rel=1e-6)
    assert change["out.bias"].dtype == np.float32
