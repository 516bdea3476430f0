"""FedFA's scaling: every client's layer has the clients' mean norm; steps are clipped to the median norm."""

import numpy as np
import pytest

from edge_client.pruning.index_sets import extract
from edge_server.strategy.aggregation.norm_scaling import ClipToMedianNorm, ScaleToMeanNorm, trimmed_norm
from edge_server.strategy.aggregation.transforms import transform_updates
from edge_server.strategy.aggregation.updates import ClientUpdate
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP

ONES = {name: np.ones(layout.shape, np.float32) for name, layout in MAP.parameters.items()}
WHOLE, TWO = SubModelSpec(), SubModelSpec(kept={"hidden": 2})


def update(client: str, spec: SubModelSpec, change: float) -> ClientUpdate:
    full = {name: np.full(array.shape, change, np.float32) for name, array in ONES.items()}
    return ClientUpdate(client, spec, {"model": extract(full, spec, MAP)}, 10)


def scaled(*updates: ClientUpdate, percentile: float = 1.0) -> list[dict[str, np.ndarray]]:
    made = transform_updates([ScaleToMeanNorm(percentile)], updates, ONES, MAP, ordered=False)
    return [{name: np.asarray(one.delta[name]) for name in MAP.parameters} for one in made]


def test_the_norm_leaves_out_the_largest_weights() -> None:
    assert trimmed_norm(np.array([3, -4, 100], np.float32), 0.7) == 5.0
    assert trimmed_norm(np.array([3, -4], np.float32), 1.0) == 5.0
    assert trimmed_norm(np.zeros(0, np.float32), 0.95) == 0.0


def test_two_whole_models_are_scaled_to_their_mean_norm() -> None:
    # Weights of 2 and 4 everywhere: norms in the ratio 1 to 2, the mean belongs to weights of 3.
    first, second = scaled(update("a", WHOLE, 1), update("b", WHOLE, 3))
    np.testing.assert_allclose(first["hidden.weight"], 2)
    np.testing.assert_allclose(second["hidden.weight"], 2)
    # Biases are not scaled.
    np.testing.assert_allclose(first["hidden.bias"], 1)
    np.testing.assert_allclose(second["hidden.bias"], 3)


def test_a_smaller_model_is_scaled_where_it_holds_weights() -> None:
    # hidden.weight: 2 x 2 weights of 2 (norm 4), and 5 x 2 of 2 (norm sqrt(40)).
    small, whole = scaled(update("a", TWO, 1), update("b", WHOLE, 1))
    mean = (4 + np.sqrt(40)) / 2
    np.testing.assert_allclose(small["hidden.weight"][:2], 2 * mean / 4 - 1, rtol=1e-6)
    np.testing.assert_allclose(small["hidden.weight"][2:], 0)
    np.testing.assert_allclose(whole["hidden.weight"], 2 * mean / np.sqrt(40) - 1, rtol=1e-6)


def test_a_single_client_is_not_changed() -> None:
    (only,) = scaled(update("a", TWO, 1), percentile=0.95)
    np.testing.assert_allclose(only["out.weight"][:, :2], 1, rtol=1e-6)


@pytest.mark.parametrize("percentile", [0.0, 1.5])
def test_a_percentile_is_a_share(percentile: float) -> None:
    with pytest.raises(ValueError, match="percentile"):
        ScaleToMeanNorm(percentile)


def clipped(*updates: ClientUpdate) -> list[float]:
    """The changes of a weight that all hold, of updates in the order of their clients."""
    made = transform_updates([ClipToMedianNorm()], updates, ONES, MAP, ordered=False)
    return [float(np.asarray(one.delta["hidden.weight"])[0, 0]) for one in made]


def test_a_step_longer_than_the_median_is_clipped_to_it_whatever_the_width() -> None:
    assert clipped(update("a", TWO, 1), update("b", WHOLE, 2), update("c", WHOLE, -50)) == [1, 2, -2]
    assert clipped(update("a", TWO, -50), update("b", WHOLE, 2), update("c", WHOLE, 1)) == [-2, 2, 1]


def test_updates_without_a_change_have_no_part_in_the_median() -> None:
    assert clipped(update("a", WHOLE, 0), update("b", WHOLE, 0), update("c", WHOLE, 3)) == [0, 0, 3]
    assert clipped(update("a", WHOLE, 0), update("b", WHOLE, 0)) == [0, 0]
