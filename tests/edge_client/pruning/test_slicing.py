"""Slicing arrays, expanding them again, and reordering channels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import expand, expected_shapes, extract, permute
from edge_client.pruning.surgery import arrays_of
from schemas.errors import InvariantError
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from tests.edge_client.networks import INPUT, Recipe, random_spec, small_net

A, B = Segment(channels=3, group="a"), Segment(channels=2, group="b")
# A layer that outputs the 3 channels of a from one input channel, and a layer that reads a and b flattened
# from maps of 2 positions.
MAP = ChannelMap(
    groups={"a": ChannelGroup(channels=3, layers=("a",)), "b": ChannelGroup(channels=2, layers=("b",))},
    parameters={
        "a.weight": ParameterLayout(shape=(3, 1), axes={0: (A,)}),
        "out.weight": ParameterLayout(
            shape=(1, 10), axes={1: (A.model_copy(update={"repeat": 2}), B.model_copy(update={"repeat": 2}))}
        ),
        "out.bias": ParameterLayout(shape=(1,)),
    },
)
ARRAYS = {
    "a.weight": np.array([[10.0], [11.0], [12.0]]),
    "out.weight": np.arange(10.0)[None],
    "out.bias": np.array([5.0]),
}
RECIPE = Recipe(norm="group", depthwise=True, residual=True, concat=True)
NET_MAP = trace_channels(small_net(RECIPE, 0), INPUT)
NET_ARRAYS = arrays_of(small_net(RECIPE, 0))
specs = st.integers(0, 10_000).map(lambda seed: random_spec(NET_MAP, seed))


def test_extract_takes_the_kept_channels_in_the_order_of_the_spec():
    cut = extract(ARRAYS, SubModelSpec(kept={"a": (2, 0), "b": 1}), MAP)
    assert cut["a.weight"].ravel().tolist() == [12, 10]
    # Channel 2 of a is at 4, 5 and channel 0 at 0, 1; b starts at 6, and its first channel is kept.
    assert cut["out.weight"].ravel().tolist() == [4, 5, 0, 1, 6, 7]
    assert cut["out.bias"] is ARRAYS["out.bias"]


def test_expand_restores_kept_channels_and_marks_their_coverage():
    cut = {"out.weight": np.array([[4.0, 5, 0.5, 1, 6, 7]])}
    full, coverage = expand(cut, SubModelSpec(kept={"a": (2, 0), "b": 1}), MAP)
    assert full["out.weight"].ravel().tolist() == [0.5, 1, 0, 0, 4, 5, 6, 7, 0, 0]
    assert coverage["out.weight"].ravel().astype(int).tolist() == [1, 1, 0, 0, 1, 1, 1, 1, 0, 0]


def test_permute_moves_a_channel_everywhere():
    moved = permute(ARRAYS, {"a": [1, 2, 0]}, MAP)
    assert moved["a.weight"].ravel().tolist() == [11, 12, 10]
    assert moved["out.weight"].ravel().tolist() == [2, 3, 4, 5, 0, 1, 6, 7, 8, 9]


def test_permute_needs_every_channel_once():
    with pytest.raises(InvariantError, match=r"expected shape \(3,\)"):
        permute(ARRAYS, {"a": [1, 0]}, MAP)


@pytest.mark.parametrize("spec", [SubModelSpec(), SubModelSpec(kept={"a": 3, "b": (0, 1)})])
def test_the_full_model_is_returned_without_copying(spec):
    cut = extract(ARRAYS, spec, MAP)
    full, coverage = expand(cut, spec, MAP)
    assert all(cut[name] is ARRAYS[name] and full[name] is ARRAYS[name] for name in ARRAYS)
    assert all(held.all() and held.shape == ARRAYS[name].shape for name, held in coverage.items())


@settings(max_examples=40, deadline=None)
@given(specs)
def test_extract_after_expand_is_the_identity(spec):
    cut = extract(NET_ARRAYS, spec, NET_MAP)
    full, coverage = expand(cut, spec, NET_MAP)
    again = extract(full, spec, NET_MAP)
    assert all(np.array_equal(again[name], cut[name]) for name in cut)
    assert all(np.array_equal(full[n], np.where(coverage[n], NET_ARRAYS[n], 0)) for n in full)
    assert {name: array.shape for name, array in cut.items()} == expected_shapes(spec, NET_MAP)
    assert all(coverage[name].sum() == cut[name].size for name in cut)


def test_arrays_that_do_not_fit_are_refused():
    with pytest.raises(InvariantError, match="not in the channel map"):
        extract({"other": np.zeros(1)}, SubModelSpec(), MAP)
    with pytest.raises(InvariantError, match=r"expected shape \(3, 1\), got \(2, 1\)"):
        extract({"a.weight": np.zeros((2, 1))}, SubModelSpec(), MAP)
    with pytest.raises(InvariantError, match=r"expected shape \(2, 1\), got \(3, 1\)"):
        expand({"a.weight": np.zeros((3, 1))}, SubModelSpec(kept={"a": 2}), MAP)


@pytest.mark.parametrize("kept", [{"c": 1}, {"a": 4}, {"a": (3,)}])
def test_a_spec_of_another_network_is_refused(kept):
    with pytest.raises(InvariantError, match="lacks"):
        extract(ARRAYS, SubModelSpec(kept=kept), MAP)


@pytest.mark.parametrize("kept", [3, (0, 2), (1, 2), (0, 1, 2)])
def test_a_spec_that_breaks_a_block_is_refused(kept):
    # Norm groups of 2 channels: 0 with 1, 2 with 3.
    blocks = ChannelMap(groups={"a": ChannelGroup(channels=4, layers=("a",), multiple=2)}, parameters={})
    with pytest.raises(InvariantError, match="whole blocks of 2"):
        expected_shapes(SubModelSpec(kept={"a": kept}), blocks)
