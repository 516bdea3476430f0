"""The norm bound: from the median and MAD of recently accepted updates, without refusing honest devices."""

import numpy as np
import pytest

from edge_client.compression.decoding import SCALES, Decoded
from edge_server.config.run_sections import FirewallSettings
from edge_server.coordinator.validation.consistency import magnitude_of, magnitudes_of
from edge_server.coordinator.validation.norms import STATISTICS, TRIED, NormBound, Outliers, norms_of, peak
from schemas.errors import PeerError, Reason
from schemas.submodel import ChannelMap, ParameterLayout

FOUR = FirewallSettings(norm_history=4, norm_window=5, norm_factor=2, norm_spread=10, norm_first=100)


def fed(bound: NormBound, *norms: float, kind: str = "model") -> NormBound:
    """Return the bound after updates of devices a, b, c, ... with these norms."""
    for name, norm in zip("abcdefghij", norms, strict=False):
        bound = bound.with_update(name, {kind: norm}, accepted=True)
    return bound


def refuses(bound: NormBound, norm: float, reference: float | None = None, kind: str = "model") -> bool:
    try:
        bound.check({kind: norm}, reference)
    except PeerError as error:
        return error.reason == Reason.OUT_OF_BOUNDS
    return False


def test_the_bound_is_the_median_plus_a_multiple_of_the_deviation():
    # Median of 1, 2, 3, 4 is 2.5; deviations 1.5, 0.5, 0.5, 1.5 have the median 1.
    # 2.5 + 10 * 1.4826 * 1 = 17.326, more than twice the median.
    assert fed(NormBound(FOUR), 1, 2, 3, 4).bound("model") == pytest.approx(17.326)


def test_equal_norms_still_allow_a_small_difference():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1)
    assert not refuses(bound, 2)
    assert refuses(bound, 2.01)


def test_with_too_few_norms_an_update_is_compared_with_the_model():
    bound = fed(NormBound(FOUR), 1, 1, 1)
    assert not refuses(bound, 10, reference=0.1)
    assert refuses(bound, 10.1, reference=0.1)
    assert not refuses(bound, 1e5)
    assert not refuses(bound, 1e5, reference=0.0)


def test_with_too_few_norms_other_kinds_are_not_bounded():
    assert not refuses(fed(NormBound(FOUR), 1, 1, 1, kind="control"), 1e5, reference=0.1, kind="control")


def test_statistics_may_spread_ten_times_as_far():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1, kind=STATISTICS)
    assert not refuses(bound, 20, kind=STATISTICS)
    assert refuses(bound, 20.1, kind=STATISTICS)


@pytest.mark.parametrize("factor", [1.1, 1 / 1.1])
def test_the_bound_follows_as_norms_grow_or_shrink(factor):
    bound, norm = fed(NormBound(FOUR), 1, 1, 1, 1), 1.0
    for _ in range(20):
        norm *= factor
        assert not refuses(bound, norm)
        bound = bound.with_update("a", {"model": norm}, accepted=True)
    # Only the last five norms count; with the middle one m they are 0.826 m, 0.909 m, m, 1.1 m, 1.21 m. Their
    # deviations are 0.174 m, 0.091 m, 0, 0.1 m and 0.21 m: the MAD is 0.1 m, the bound (1 + 10 * 0.14826) m.
    assert bound.bound("model") == pytest.approx(2.4826 * factor**18)


def test_refused_norms_do_not_count():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1)
    for _ in range(10):
        bound = bound.with_update("mallory", {"model": 1e6}, accepted=False)
    assert bound.bound("model") == 2


def test_updates_without_changes_do_not_count():
    bound = fed(NormBound(FOUR), 0, 0, 0, 0)
    assert bound.bound("model") is None
    assert not refuses(bound, 5)


def test_refusals_of_a_majority_reset_the_bound_but_those_of_a_minority_do_not():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1, 1)
    for name in "vwxyz":
        bound = bound.with_update(name, {"model": 50}, accepted=False)
        assert refuses(bound, 50)
    # Six are refused and five are not, so the bound must be wrong.
    bound = bound.with_update("u", {"model": 50}, accepted=False)
    assert not refuses(bound, 50)


def test_a_device_whose_updates_fit_again_no_longer_counts_as_refused():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1)
    bound = bound.with_update("a", {"model": 50}, accepted=False)
    assert (bound.fitting, bound.refused) == (frozenset("bcd"), frozenset("a"))
    bound = bound.with_update("a", {"model": 1}, accepted=True)
    assert (bound.fitting, bound.refused) == (frozenset("abcd"), frozenset())


def test_the_bound_may_be_disabled():
    off = FOUR.model_copy(update={"norm_bound": False})
    assert not refuses(fed(NormBound(off), 1, 1, 1, 1), 1e5, reference=0.1)


def test_restoring_rows_equals_observing_them_one_by_one():
    rows = [(name, None, {"model": 1.0 + index}) for index, name in enumerate("abcd")]
    rows += [("m", "out-of-bounds", {"model": 99.0}), ("n", "out-of-bounds", {}), ("o", "not-finite", {})]
    observed = fed(NormBound(FOUR), 1, 2, 3, 4).with_update("m", {"model": 99.0}, accepted=False)
    assert NormBound(FOUR).after(rows) == observed


def test_different_sub_models_have_comparable_norms():
    layouts = {name: ParameterLayout(shape=(9,)) for name in ("w", "b.running_var")}
    known = ChannelMap(groups={}, parameters=layouts)
    whole, part = np.full(9, 0.5, np.float32), np.full(4, 0.5, np.float32)
    for array in (whole, part):
        assert norms_of(magnitudes_of({"model": {"w": array}}), known) == {"model": 0.5, "model peak": 0.5}


def test_statistics_and_other_groups_have_separate_norms_and_non_parameters_have_none():
    layouts = {name: ParameterLayout(shape=(2,)) for name in ("w", "b.running_var")}
    known = ChannelMap(groups={}, parameters=layouts)
    # The root of the mean of 3 * 3 and 4 * 4 is the root of 12.5.
    array = np.array([3, 4], np.float32)
    groups = {
        "model": {"w": array, "b.running_var": 2 * array},
        "control": {"w": 3 * array},
        "attention": {"layer": array},
    }
    root = 12.5**0.5
    norms = {"model": root, STATISTICS: 2 * root, "control": 3 * root}
    peaks = {"model peak": 4, f"{STATISTICS} peak": 8, "control peak": 12}
    assert norms_of(magnitudes_of(groups), known) == pytest.approx({**norms, **peaks})


def test_a_non_parameter_bounded_by_a_rule_has_a_norm():
    groups = {"mean-data": {"images": np.array([3, 4], np.float32), "labels": np.ones(2, np.float32)}}
    found = norms_of(magnitudes_of(groups), ChannelMap(groups={}, parameters={}), {("mean-data", "images")})
    assert found == pytest.approx({"mean-data images": 12.5**0.5, "mean-data images peak": 4})


def test_the_parts_of_a_model_have_separate_norms_and_its_statistics_have_not():
    names = ("a.weight", "a.running_var", "fc.weight")
    known = ChannelMap(groups={}, parameters={name: ParameterLayout(shape=(2,)) for name in names})
    sizes = magnitudes_of(
        {group: dict.fromkeys(names, np.ones(2, np.float32)) for group in ("model", "control")}
    )
    kinds = {"model", "model from a.weight", STATISTICS, "control"}
    peaks = {"model peak", "model peak from a.weight", f"{STATISTICS} peak", "control peak"}
    parts = dict.fromkeys(names[:2], "a.weight")
    assert norms_of(sizes, known, parts=parts) == dict.fromkeys(kinds | peaks, 1.0)


# --- all updates of a round ---
NONE = Outliers({}, {})


def together(*norms: float, kind: str = "model") -> dict[str, dict[str, float]]:
    return {name: {kind: norm} for name, norm in zip("abcdefghij", norms, strict=False)}


def test_an_outlier_of_the_first_round_is_found():
    # The median of 1, 2, 3, 4 and 99 is 3; deviations 2, 1, 0, 1, 96: 3 + 10 * 1.4826 * 1 = 17.8.
    found = NormBound(FOUR).find_outliers(together(1, 2, 3, 4, 99))
    assert found.refused == {"e": "a typical number of 'model' is 99, at most 17.8 is usual in this round"}
    assert NormBound(FOUR).find_outliers(together(1, 2, 3, 4, 17.8)) == NONE


def test_largest_numbers_may_spread_twice_as_far_as_norms():
    sent = {
        name: {"model": 1.0, "model peak": peak}
        for name, peak in zip("abcde", (1, 1, 1, 1, 3.9), strict=True)
    }
    assert NormBound(FOUR).find_outliers(sent) == NONE
    sent["e"]["model peak"] = 4.1
    assert set(NormBound(FOUR).find_outliers(sent).refused) == {"e"}


def test_no_more_than_half_of_a_round_can_be_outliers():
    assert NormBound(FOUR).find_outliers(together(1, 1, 1e5, 1e5, 1e5)) == NONE


def test_a_round_of_two_is_compared_with_recent_rounds_if_there_are_any():
    bound = fed(NormBound(FOUR), 1, 1, 1)
    assert set(bound.find_outliers(together(1, 50)).refused) == {"b"}
    assert NormBound(FOUR).find_outliers(together(1, 50)) == NONE


def test_the_largest_number_is_bounded_even_if_the_norm_hides_it():
    sent = {name: {"control": 1.0, "control peak": 2.0} for name in "abc"}
    sent["c"] = {"control": 1.9, "control peak": 900.0}
    assert "the largest number of 'control' is 900" in NormBound(FOUR).find_outliers(sent).refused["c"]


def test_a_kind_that_spreads_wider_has_a_wider_bound():
    sent = together(1, 1, 1, 5.9, kind="control")
    assert NormBound(FOUR).find_outliers(sent, {"control": 3.0}) == NONE
    assert set(NormBound(FOUR).find_outliers(sent).refused) == {"d"}


def test_no_outliers_are_found_if_the_bound_is_disabled_or_nothing_moved():
    off = FOUR.model_copy(update={"norm_bound": False})
    assert NormBound(off).find_outliers(together(1, 1, 1, 1e9)) == NONE
    assert NormBound(FOUR).find_outliers(together(0, 0, 0, 5)) == NONE


def by_part(device: str, head: float, blocks: float = 0.0, last: float = 0.0) -> dict[str, dict[str, float]]:
    norms = {"model": head, "model from block1.weight": blocks, "model from block9.weight": last}
    peaks = {peak(kind): 3 * norm for kind, norm in norms.items()}
    return {device: {kind: norm for kind, norm in {**norms, **peaks}.items() if norm}}


def test_heads_are_compared_with_heads_and_blocks_with_blocks():
    """A head moves further than blocks; three devices train it alone."""
    heads = by_part("a", 9) | by_part("b", 9) | by_part("c", 10)
    blocks = by_part("d", 9, 1) | by_part("e", 10, 1) | by_part("f", 9, 1)
    assert NormBound().find_outliers(heads | blocks) == NONE
    assert set(NormBound().find_outliers(heads | blocks | by_part("c", 90)).refused) == {"c"}
    assert set(NormBound().find_outliers(heads | blocks | by_part("f", 9, 9)).refused) == {"f"}


def test_a_part_that_one_device_trains_is_compared_with_other_parts_and_then_with_earlier_rounds():
    heads = by_part("a", 9) | by_part("b", 9) | by_part("c", 10)
    assert NormBound().find_outliers(heads | by_part("d", 10, 1, 30)) == NONE
    found = NormBound().find_outliers(heads | by_part("d", 10, 1, 50))
    assert "'model from block9.weight' is 50, at most 47.5" in found.refused["d"]
    bound = fed(NormBound(), 1, 1, 1, kind="model from block9.weight")
    assert set(bound.find_outliers(heads | by_part("d", 10, 1, 6)).refused) == {"d"}


def test_magnitudes_of_codes_are_those_of_the_decoded_numbers():
    # Rows (-4, 2) and (-3, 0): 2^2 + 1^2 = 5 with a scale of 0.5, and 6^2 = 36 with one of 2.
    codes, scales = np.array([[-4, 2], [-3, 0]], np.int8), np.array([0.5, 2], np.float32)
    size = magnitude_of(Decoded({"model": {"w": codes}, SCALES: {"w": scales}}), "w")
    assert (size.largest, size.squares, size.count) == (6, 41, 4)


def test_the_magnitude_of_the_smallest_code_does_not_overflow():
    codes, scales = np.array([[-128, 5]], np.int8), np.array([1], np.float32)
    assert magnitude_of(Decoded({"model": {"w": codes}, SCALES: {"w": scales}}), "w").largest == 128


@pytest.mark.parametrize("scale", [np.inf, np.nan, 3e38])
def test_codes_with_products_that_are_not_finite_have_no_magnitude(scale):
    codes, scales = np.array([[0, 0], [7, 1]], np.int8), np.array([1, scale], np.float32)
    size = magnitude_of(Decoded({"model": {"w": codes}, SCALES: {"w": scales}}), "w")
    assert np.isnan([size.largest, size.squares]).all()


# --- updates that are tried on test data ---
def test_an_update_that_is_tried_may_be_some_bounds_large_unless_it_is_no_model():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1)
    most = bound.bound("model")
    assert most is not None
    for norms in ({"model": 1.01 * most}, {"model": TRIED * most}):
        bound.check(norms, tried=True)
        with pytest.raises(PeerError, match="a typical number of 'model'"):
            bound.check(norms)
    with pytest.raises(PeerError, match="a typical number of 'model'"):
        bound.check({"model": 1.01 * TRIED * most}, tried=True)
    other = fed(NormBound(FOUR), 1, 1, 1, 1, kind="control")
    with pytest.raises(PeerError, match="a typical number of 'control'"):
        other.check({"control": 1.01 * (other.bound("control") or 0)}, tried=True)


def test_a_round_that_is_tried_is_compared_with_recent_rounds_too():
    bound = fed(NormBound(FOUR), 1, 1, 1, 1)
    sent = together(1.5, 1.5, 1.5, 1.5, 2.5)
    assert bound.find_outliers(sent) == NONE
    assert set(bound.find_outliers(sent, tried=True).suspects) == {"e"}


def test_far_beyond_all_bounds_an_update_is_refused_untried():
    """The bound of this round is 6, that of the recent ones 2."""
    bound = fed(NormBound(FOUR), 1, 1, 1, 1)
    found = bound.find_outliers(together(3, 3, 3, 6 * TRIED, 6.01 * TRIED), tried=True)
    assert (set(found.suspects), set(found.refused)) == ({"a", "b", "c", "d"}, {"e"})
    sent = {**together(1, 1, 1, 3), "e": {"model": 3.0, "control": 9.0}, "f": {"model": 1.0, "control": 1.0}}
    sent["a"]["control"] = sent["b"]["control"] = 1.0
    found = NormBound(FOUR).find_outliers(sent, tried=True)
    assert (set(found.suspects), set(found.refused)) == ({"d"}, {"e"})
