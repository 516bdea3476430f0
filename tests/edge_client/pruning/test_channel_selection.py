"""Channel selection from scores and ratios."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_client.models.build import build_model
from edge_client.models.registry import ModelEntry, entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import (
    group_ratios,
    group_scores,
    kept_count,
    personal_spec,
    prefix_spec,
    ranking,
    round_ratio,
)
from schemas.errors import ConfigError, InvariantError
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.values import ModelSpec

A, B = Segment(channels=4, group="a"), Segment(channels=2, group="b")
# `d` is a depth-wise layer over a and b concatenated.
MAP = ChannelMap(
    groups={
        "a": ChannelGroup(channels=4, layers=("a", "c", "d"), multiple=2),
        "b": ChannelGroup(channels=2, layers=("b", "d")),
    },
    parameters={
        "a.weight": ParameterLayout(shape=(4, 1), axes={0: (A,)}),
        "b.weight": ParameterLayout(shape=(2, 1), axes={0: (B,)}),
        "c.weight": ParameterLayout(shape=(4, 4), axes={0: (A,), 1: (A,)}),
        "d.weight": ParameterLayout(shape=(6, 1), axes={0: (A, B)}),
        "out.weight": ParameterLayout(shape=(3, 6), axes={1: (A, B)}),
    },
)
ALL = ModelEntry(factory="x:y", summary="any")


def resnet_map():
    return trace_channels(
        build_model(ModelSpec(name="resnet56", input_shape=(3, 8, 8), num_classes=10)), (3, 8, 8)
    )


@pytest.mark.parametrize(
    ("channels", "ratio", "multiple", "kept"),
    [
        (64, 0.7, 1, 19),  # ceil(44.8) = 45 are removed
        (10, 0.7, 1, 3),  # 0.7 * 10 is 7, not 8
        (10, 0.3, 1, 7),
        (5, 0.0, 1, 5),
        (5, 0.99, 1, 1),  # at least one
        (12, 0.5, 4, 4),  # 3 blocks: ceil(1.5) = 2 are removed
        (12, 0.99, 12, 12),
    ],
)
def test_the_number_of_kept_channels(channels, ratio, multiple, kept):
    assert kept_count(channels, ratio, multiple) == kept


@given(st.integers(1, 60), st.integers(1, 8), st.floats(0, 0.999), st.floats(0, 0.999))
def test_more_pruning_never_keeps_more_and_blocks_stay_whole(blocks, multiple, first, second):
    few, many = sorted(kept_count(blocks * multiple, p, multiple) for p in (first, second))
    assert (kept_count(blocks * multiple, max(first, second), multiple)) == few
    assert few % multiple == many % multiple == 0
    assert multiple <= few <= many <= blocks * multiple


def test_a_level_of_the_paper_has_a_ratio_per_stage():
    ratios = group_ratios(entry("resnet56"), 0.7, resnet_map())
    assert "conv1" not in ratios
    assert ratios["layer1.0.conv3"] == ratios["layer2.3.conv1"] == 0.2
    assert ratios["layer3.0.conv3"] == ratios["layer3.5.conv2"] == 0.6


def test_any_other_ratio_applies_to_every_target():
    ratios = group_ratios(entry("resnet56"), 0.4, resnet_map())
    assert set(ratios.values()) == {0.4}
    assert len(ratios) == 39
    assert group_ratios(ALL, 0.4, MAP) == {"a": 0.4, "b": 0.4}


@pytest.mark.parametrize(
    ("multiple", "kept"),
    [
        # Of 5 and 7 channels, ratio 0.4 removes ceil(2.0) = 2 and ceil(2.8) = 3, which leaves 3 and 4.
        (1, {"a": 3, "b": 4}),
        (2, {"a": 4, "b": 4}),
        (4, {"a": 4, "b": 4}),
        # Neither group has 8 channels, so all stay.
        (8, {"a": 5, "b": 7}),
    ],
)
def test_kept_channels_are_rounded_up_to_a_multiple(multiple, kept):
    channel_map = ChannelMap(
        groups={"a": ChannelGroup(channels=5, layers=("a",)), "b": ChannelGroup(channels=7, layers=("b",))},
        parameters={},
    )
    ratios = group_ratios(replace(ALL, multiple=multiple), 0.4, channel_map)
    spec = prefix_spec(ratios, channel_map)
    assert {name: spec.count(name, group.channels) for name, group in channel_map.groups.items()} == kept


@given(st.integers(1, 40), st.integers(1, 6), st.integers(1, 16), st.floats(0, 0.999))
def test_rounding_keeps_whole_blocks_and_no_fewer_channels(blocks, block, multiple, ratio):
    group = ChannelGroup(channels=blocks * block, multiple=block, layers=("a",))
    exact = kept_count(group.channels, ratio, block)
    kept = kept_count(group.channels, round_ratio(ratio, group, multiple), block)
    step = math.lcm(multiple, block)
    assert exact <= kept < exact + step
    assert kept == group.channels or kept % step == 0


def test_the_papers_counts_are_exact_unless_a_multiple_is_set():
    ratios = group_ratios(replace(entry("resnet56"), multiple=8), 0.7, resnet_map())
    # Ratio 0.2 leaves 12 of 16 and 51 of 64 channels, which are rounded up to 16 (all of them) and 56.
    assert ratios["layer1.0.conv1"] == 0.0
    assert ratios["layer1.0.conv3"] == pytest.approx(8 / 64)
    assert group_ratios(entry("resnet56"), 0.7, resnet_map())["layer1.0.conv1"] == 0.2


def test_only_conv2_of_two_nn_is_pruned():
    module = build_model(ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=10))
    channel_map = trace_channels(module, (1, 8, 8))
    assert group_ratios(entry("two-nn"), 0.7, channel_map) == {"conv2": 0.7}


def test_a_glob_matches_a_group_by_any_of_its_layers_and_the_first_counts():
    assert group_ratios(ALL, {"c": 0.5, "*": 0.25}, MAP) == {"a": 0.5, "b": 0.25}
    assert group_ratios(ALL, {"b": 0.5}, MAP) == {"a": 0.0, "b": 0.5}


@pytest.mark.parametrize(
    ("ratio", "complaint"), [({"aa": 0.5}, "did you mean 'a'"), (1.0, r"\[0, 1\)"), (-0.1, "not in")]
)
def test_an_invalid_ratio_is_refused(ratio, complaint):
    with pytest.raises(ConfigError, match=complaint):
        group_ratios(ALL, ratio, MAP)


def test_a_group_is_scored_by_the_mean_of_its_layers():
    scores = group_scores({"a": np.array([1.0, 2, 3, 4]), "d": np.array([3.0, 2, 1, 0, 7, 9])}, MAP)
    # c has no scores and does not count; d covers a and then b.
    assert scores["a"].tolist() == [2, 2, 2, 2]
    assert scores["b"].tolist() == [7, 9]
    assert scores["a"].dtype == np.float32


@pytest.mark.parametrize("layer", ["a", "unknown"])
def test_scores_that_do_not_fit_their_layer_are_refused(layer):
    with pytest.raises(InvariantError, match="do not fit"):
        group_scores({layer: np.zeros(3)}, MAP)


def test_channels_rank_by_descending_score_and_then_by_index():
    assert ranking(np.array([0.2, 0.9, 0.2, 0.5])) == (1, 3, 0, 2)


def test_a_client_keeps_its_most_attended_channels_first_in_whole_blocks():
    scores = {"a": np.array([0.1, 0.2, 0.9, 0.0]), "b": np.array([0.1, 0.3])}
    # The blocks of a score 0.15 and 0.45: the second block stays, with its channels in their original order.
    assert personal_spec(scores, {"a": 0.5, "b": 0.5}, MAP) == SubModelSpec(kept={"a": (2, 3), "b": (1,)})
    assert personal_spec(scores, {"a": 0.0, "b": 0.0}, MAP).kept == {"a": (2, 3, 0, 1), "b": (1, 0)}


def test_a_group_without_scores_or_of_another_network_is_refused():
    with pytest.raises(InvariantError, match="expected 4 scores"):
        personal_spec({}, {"a": 0.5}, MAP)
    with pytest.raises(InvariantError, match="no channel group"):
        prefix_spec({"z": 0.5}, MAP)


def test_a_prefix_keeps_the_leading_channels_and_ratio_zero_is_the_full_model():
    assert prefix_spec({"a": 0.5, "b": 0.0}, MAP) == SubModelSpec(kept={"a": 2})
    assert prefix_spec({"a": 0.0, "b": 0.0}, MAP) == SubModelSpec()
