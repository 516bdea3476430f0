"""Combiners that limit the influence of single clients, and the mean over the overlap; calculated by hand."""

import numpy as np
import pytest

from edge_server.strategy.aggregation.combiners import (
    COMBINERS,
    cosines_to_others,
    krum,
    krum_scores,
    median,
    squared_distances,
    trimmed_mean,
)
from edge_server.strategy.aggregation.means import mean_over_holders, mean_over_overlap
from edge_server.strategy.aggregation.updates import ClientUpdate, to_global
from edge_server.strategy.components import make_component
from schemas.errors import ConfigError
from schemas.strategy import Component
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from tests.edge_server.strategy.network import MAP, arrays, update


def constant(value: float) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, value) for name, array in arrays(0).items()}


def held(value: float, kept=5):
    return to_global(update(f"c{value}", constant(value), spec=SubModelSpec(kept={"hidden": kept})), MAP)


def equal_weights(count: int) -> np.ndarray:
    return np.full(count, 1 / count)


# --- overlap mean ---
def test_only_coordinates_that_all_clients_hold_change():
    change = mean_over_overlap([held(1, 2), held(5, 4)], np.array([0.25, 0.75]))
    # Channels 0 and 1: 0.25 * 1 + 0.75 * 5 = 4. Only the second holds channels 2 and 3, nobody 4.
    assert change["hidden.bias"].tolist() == [4, 4, 0, 0, 0]
    assert change["out.weight"][1].tolist() == [4, 4, 0, 0, 0]
    assert change["out.bias"].tolist() == [4, 4]


def test_the_overlap_need_not_be_a_prefix():
    change = mean_over_overlap([held(1, (4, 0)), held(3, (0, 2))], equal_weights(2))
    assert change["hidden.bias"].tolist() == [2, 0, 0, 0, 0]


def test_the_overlap_mean_of_full_models_is_exactly_the_mean():
    sent = [to_global(update(f"c{k}", arrays(k)), MAP) for k in range(4)]
    one, other = mean_over_overlap(sent, equal_weights(4)), mean_over_holders(sent, equal_weights(4))
    assert all((one[name] == other[name]).all() and one[name].dtype == np.float32 for name in one)


# --- median ---
def test_the_median_is_taken_over_the_holders_of_each_coordinate():
    sent = [held(1, 5), held(2, 5), held(9, 3), held(100, 2)]
    # Channels 0 and 1: 1 2 9 100, (2 + 9) / 2. Channel 2: 1 2 9. Channels 3 and 4: 1 2, 1.5.
    assert median()(sent, equal_weights(4))["hidden.bias"].tolist() == [5.5, 5.5, 2, 1.5, 1.5]


def test_the_median_changes_nothing_that_nobody_holds():
    assert median()([held(1, 2), held(3, 2)], equal_weights(2))["hidden.bias"].tolist() == [2, 2, 0, 0, 0]


def test_two_hostile_clients_of_five_do_not_move_the_median_out_of_the_honest_values():
    sent = [held(1), held(2), held(3), held(1e30), held(2e30)]
    assert median()(sent, equal_weights(5))["out.bias"].tolist() == [3, 3]


def test_weights_have_no_influence_on_the_median():
    sent = [held(1), held(2), held(50)]
    assert median()(sent, np.array([0.01, 0.01, 0.98]))["out.bias"].tolist() == [2, 2]


# --- trimmed mean ---
def test_the_largest_and_smallest_values_are_left_out():
    # trim 0.2 of 5: one on each side; (2 + 3 + 7) / 3 = 4.
    sent = [held(-1e6), held(2), held(3), held(7), held(1e6)]
    assert trimmed_mean(trim=0.2)(sent, equal_weights(5))["out.bias"].tolist() == [4, 4]


def test_the_number_of_values_left_out_depends_on_the_holders_of_the_coordinate():
    # trim 0.25: one value per side with 4 holders, floor(0.75) = none with 3 holders, none without holders.
    sent = [held(0, 4), held(1, 4), held(5, 4), held(90, 2)]
    # Channels 0 and 1: (1 + 5) / 2. Channels 2 and 3: (0 + 1 + 5) / 3. Channel 4: nobody.
    assert trimmed_mean(trim=0.25)(sent, equal_weights(4))["hidden.bias"].tolist() == [3, 3, 2, 2, 0]


def test_a_share_of_a_whole_number_of_clients_is_not_reduced_by_rounding():
    # 0.29 * 100 is 28.999999999999996: 29 of the squares of 0..99 go on each side,
    # which leaves the mean of 29^2 .. 70^2.
    sent = [held(k**2) for k in range(100)]
    assert trimmed_mean(trim=0.29)(sent, equal_weights(100))["out.bias"] == pytest.approx(
        np.full(2, sum(k**2 for k in range(29, 71)) / 42)
    )


def test_without_trim_it_is_the_mean_for_equal_weights():
    sent = [held(1, 2), held(5, 4), held(6, 5)]
    one, other = trimmed_mean(trim=0)(sent, equal_weights(3)), mean_over_holders(sent, equal_weights(3))
    assert all(np.allclose(one[name], other[name]) for name in one)


# --- cosines ---
def test_an_update_is_compared_with_the_mean_of_the_others():
    opposed = cosines_to_others([held(2), held(4), held(-6), held(0)], equal_weights(4))
    # Means of the others: -2/3, -4/3, 2 and 0.
    assert opposed == pytest.approx([-1, -1, -1, 0])
    # The mean of -1 and 3, of weights 1 and 3, is 2.
    assert cosines_to_others([held(1), held(-1), held(3)], [1, 1, 3])[0] == pytest.approx(1)


def test_what_one_update_alone_holds_has_no_part_in_a_cosine():
    wide = constant(1)
    wide["hidden.bias"][2:] = -7
    sent = [held(1, 2), to_global(update("wide", wide), MAP)]
    assert cosines_to_others(sent, equal_weights(2)) == pytest.approx([1, 1])


def test_running_statistics_have_no_part_in_a_cosine():
    layouts = {name: ParameterLayout(shape=(2,)) for name in ("w", "n.running_var")}
    channel_map = ChannelMap(groups={}, parameters=layouts)

    def sent(weight: float, variance: float):
        model = {"w": np.full(2, weight, np.float32), "n.running_var": np.full(2, variance, np.float32)}
        return to_global(ClientUpdate(f"c{weight}", SubModelSpec(), {"model": model}, 10), channel_map)

    assert cosines_to_others([sent(1, 9), sent(2, -9)], equal_weights(2)) == pytest.approx([1, 1])


# --- krum ---
def test_distances_use_common_coordinates_and_are_scaled_by_their_share():
    # All: 5 * 2 + 5 + 2 * 5 + 2 = 27 coordinates. In common with a prefix of 2: 4 + 2 + 4 + 2 = 12.
    # 12 coordinates that differ by 3: 12 * 9 = 108; by the share: 108 / (12 / 27) = 243 = 27 * 9.
    assert squared_distances([held(1, 5), held(4, 5)])[0, 1] == pytest.approx(243)
    assert squared_distances([held(1, 5), held(4, 2)])[0, 1] == pytest.approx(243)
    assert squared_distances([held(1, (0, 1)), held(4, (1, 2))])[0, 1] == pytest.approx(243)


def test_the_score_is_the_sum_of_the_distances_to_the_nearest():
    # K = 5, f = 1: 5 - 1 - 2 = 2 nearest. Squared gaps (times 27 coordinates):
    # 0: 1 + 4; 1: 1 + 1; 2: 1 + 4 (to 1 and 0, or 4); 4: 4 + 9; 50: 46^2 + 48^2 = 2116 + 2304.
    sent = [held(0), held(1), held(2), held(4), held(50)]
    assert krum_scores(sent, 1) == pytest.approx(27 * np.array([5, 2, 5, 13, 4420]))


def test_krum_returns_the_most_central_update():
    sent = [held(0), held(1), held(2), held(4), held(50)]
    assert krum(byzantine=1)(sent, equal_weights(5))["out.bias"].tolist() == [1, 1]


def test_multi_krum_is_the_weighted_mean_of_the_kept_updates():
    # Kept: 1, then 0 and 2 (both score 5). (0.1 * 0 + 0.2 * 1 + 0.3 * 2) / 0.6 = 4 / 3.
    sent, weights = [held(0), held(1), held(2), held(4), held(50)], np.array([0.1, 0.2, 0.3, 0.1, 0.3])
    assert krum(byzantine=1, keep=3)(sent, weights)["out.bias"] == pytest.approx(np.full(2, 4 / 3))


def test_without_a_number_all_but_the_hostile_are_kept():
    # f = 1 of 5: 50 is left out. (0 + 1 + 2 + 4) / 4; of one update there is no other to keep.
    sent = [held(0), held(1), held(2), held(4), held(50)]
    assert krum(byzantine=1, keep=0)(sent, equal_weights(5))["out.bias"].tolist() == [1.75, 1.75]
    assert krum(byzantine=1, keep=0)(sent[:1], equal_weights(1))["out.bias"].tolist() == [0, 0]


def test_the_number_of_hostile_clients_may_be_a_share_of_the_round():
    # 0.4 of 5 is 2: one nearest neighbour; two hostile clients who agree win: 5 > 2 * 2 + 2 does not hold.
    sent = [held(0), held(1), held(3), held(50), held(50)]
    assert krum(byzantine=0.4)(sent, equal_weights(5))["out.bias"].tolist() == [50, 50]
    # 0.3 of 5 is 1: two nearest, so 1 scores 1 + 4; a hostile client has only one near neighbour.
    assert krum(byzantine=0.3)(sent, equal_weights(5))["out.bias"].tolist() == [1, 1]


def test_weights_have_no_influence_on_krum():
    sent = [held(0), held(1), held(2), held(4), held(50)]
    assert krum(byzantine=1)(sent, np.array([0, 0.01, 0, 0, 0.99]))["out.bias"].tolist() == [1, 1]
    assert krum(byzantine=1)(sent, np.array([0, 0, 0, 0, 1.0]))["out.bias"].tolist() == [1, 1]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_krum_works_with_few_clients(count):
    sent = [held(2 + k) for k in range(count)]
    assert krum(keep=5)(sent, equal_weights(count))["out.bias"] == pytest.approx(
        np.full(2, 2 + (count - 1) / 2)
    )
    assert krum()(sent, equal_weights(count))["out.bias"].tolist() == [2, 2]


def test_an_update_gains_nothing_from_a_small_sub_model():
    # The sub-model of 2 channels has 9 where the others have 1, 2, 3: its distances are scaled up to 27 gaps.
    sent = [held(1), held(2), held(3), held(9, 2)]
    assert krum(byzantine=1)(sent, equal_weights(4))["hidden.bias"].tolist() == [1, 1, 1, 1, 1]


def test_coordinates_that_the_kept_client_lacks_do_not_change():
    sent = [held(1, 2), held(2, 2), held(3, 2), held(90, 5)]
    assert krum(byzantine=0)(sent, equal_weights(4))["hidden.bias"].tolist() == [2, 2, 0, 0, 0]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("trimmed-mean", {"trim": 0.5}, "trim must be at least 0 and below 0.5"),
        ("krum", {"byzantine": 1.5}, "byzantine must be a share below 1 or a whole number"),
        ("krum", {"byzantine": -1}, "byzantine must be a share below 1 or a whole number"),
        ("krum", {"keep": -1}, "keep must be at least 0"),
    ],
)
def test_an_option_out_of_range_is_refused(name, options, message):
    with pytest.raises(ConfigError, match=message):
        make_component("combiner", COMBINERS, Component(name=name, options=options))
