"""Valid and invalid sub-model specs and channel maps, and the channels that a spec selects."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec

A, B = ChannelGroup(channels=4, layers=("a",)), ChannelGroup(channels=2, layers=("b",))
MAP = ChannelMap(groups={"a": A, "b": B}, parameters={})


@pytest.mark.parametrize(
    ("kept", "indices"),
    [
        ({}, (0, 1, 2, 3)),  # a group that is not named is kept whole
        ({"b": 1}, (0, 1, 2, 3)),
        ({"a": 2}, (0, 1)),  # a number keeps a prefix
        ({"a": (3, 1)}, (3, 1)),  # a list keeps these channels in this order
    ],
)
def test_the_kept_channels_of_a_group(kept, indices):
    spec = SubModelSpec(kept=kept)
    assert spec.indices("a", 4) == indices
    assert spec.count("a", 4) == len(indices)


@pytest.mark.parametrize("kept", [0, -1, (), (1, 1), (-1,), (0, -2), 1.5, "two", None, ((1,),)])
def test_an_invalid_spec_is_refused(kept):
    with pytest.raises(ValidationError):
        SubModelSpec.model_validate_json(f'{{"kept": {{"a": {json.dumps(kept)}}}}}')


@pytest.mark.parametrize("kept", [{}, {"a": 4}, {"a": 1, "b": 2}, {"a": (3, 0)}, {"b": (1, 0)}])
def test_a_spec_fits_a_map_that_contains_its_channels(kept):
    assert SubModelSpec(kept=kept).fits(MAP)


@pytest.mark.parametrize("kept", [{"c": 1}, {"a": 5}, {"b": (2,)}, {"a": 1, "b": (0, 9)}])
def test_a_spec_does_not_fit_a_map_that_lacks_its_channels(kept):
    assert not SubModelSpec(kept=kept).fits(MAP)


@given(small=st.integers(1, 40), large=st.integers(1, 40), channels=st.integers(40, 60))
def test_prefixes_are_nested(small, large, channels):
    few, many = sorted((small, large))
    inner = SubModelSpec(kept={"a": few}).indices("a", channels)
    outer = SubModelSpec(kept={"a": many}).indices("a", channels)
    assert outer[: len(inner)] == inner
    assert SubModelSpec().indices("a", channels)[:many] == outer


@pytest.mark.parametrize("kept", [{}, {"a": 3}, {"a": (2, 0, 1), "b": 1}])
def test_a_spec_survives_a_round_trip(kept):
    spec = SubModelSpec(kept=kept)
    assert SubModelSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("shape", "axes", "problem"),
    [
        ((4, 2), {2: (Segment(channels=4, group="a"),)}, "axis 2"),
        ((4, 2), {-1: (Segment(channels=2, group="b"),)}, "axis -1"),
        ((4, 2), {0: (Segment(channels=3),)}, "do not add up to 4"),
        ((4, 2), {0: (Segment(channels=4, repeat=2),)}, "do not add up to 4"),
        ((4, 2), {0: ()}, "do not add up to 4"),
        ((), {0: (Segment(channels=1),)}, "axis 0"),
        ((-1,), {}, "greater than or equal to 0"),
    ],
)
def test_a_layout_that_does_not_fill_its_axes_is_refused(shape, axes, problem):
    with pytest.raises(ValidationError, match=problem):
        ParameterLayout(shape=shape, axes=axes)


def test_consecutive_segments_fill_an_axis():
    # Four channels of 3 positions, then two channels that are never pruned: 4 * 3 + 2 = 14.
    segments = (Segment(channels=4, group="a", repeat=3), Segment(channels=2))
    layout = ParameterLayout(shape=(14,), axes={0: segments})
    assert sum(segment.positions for segment in layout.axes[0]) == 14


@pytest.mark.parametrize(
    "segment", [Segment(channels=4, group="z"), Segment(channels=4, group="b", repeat=1)]
)
def test_a_map_whose_parameters_name_unknown_channels_is_refused(segment):
    layout = ParameterLayout(shape=(4,), axes={0: (segment,)})
    with pytest.raises(ValidationError, match="unknown group"):
        ChannelMap(groups={"a": A, "b": B}, parameters={"w": layout})


@pytest.mark.parametrize("fields", [{"channels": 0}, {"channels": 1, "repeat": 0}, {"channels": 1, "x": 1}])
def test_an_invalid_segment_is_refused(fields):
    with pytest.raises(ValidationError):
        Segment(**fields)
