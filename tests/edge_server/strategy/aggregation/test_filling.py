"""`fill-with-global` by hand: two devices of equal weight, one without channel 1; both move all by 1."""

import numpy as np
import pytest

from edge_client.pruning.slicing import extract
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.build import make_strategy
from edge_server.strategy.closing import close
from edge_server.strategy.strategy import State
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec

CHANNEL = (Segment(channels=2, group="c"),)
PLAIN = {
    "conv.weight": ParameterLayout(shape=(2, 1, 1, 1), axes={0: CHANNEL}),
    "conv.bias": ParameterLayout(shape=(2,), axes={0: CHANNEL}),
    "out.weight": ParameterLayout(shape=(1, 2), axes={1: CHANNEL}),
    "out.bias": ParameterLayout(shape=(1,)),
}
NORMALISED = {
    **PLAIN,
    "norm.weight": ParameterLayout(shape=(2,), axes={0: CHANNEL}),
    "norm.bias": ParameterLayout(shape=(2,), axes={0: CHANNEL}),
}


def moved(layouts: dict[str, ParameterLayout], *, normalised: bool) -> dict[str, float]:
    """How far channel 1 of each parameter moves; those without channels are left out."""
    channels = ChannelMap(groups={"c": ChannelGroup(channels=2, layers=("conv",))}, parameters=layouts)
    before = {name: np.zeros(layout.shape, np.float32) for name, layout in layouts.items()}
    ones = {name: np.ones_like(array) for name, array in before.items()}
    specs = {"a": SubModelSpec(), "b": SubModelSpec(kept={"c": 1})}
    updates = [
        ClientUpdate(name, spec, {"model": extract(ones, spec, channels)}, 10) for name, spec in specs.items()
    ]
    fill = Component(name="fill-with-global", options={} if normalised else {"normalised": False})
    strategy = make_strategy(StrategySpec(transforms=(fill,)), (0.5, 0.0))
    after = close(strategy, State(params=before), updates, channels)
    return {name: float(after.params[name].ravel()[1]) for name in layouts if after.params[name].size > 1}


@pytest.mark.parametrize("layouts", [PLAIN, NORMALISED])
def test_every_layer_is_filled_if_not_told_otherwise(layouts: dict[str, ParameterLayout]) -> None:
    assert set(moved(layouts, normalised=True).values()) == {0.5}


def test_convolutions_and_normalisations_move_as_far_as_their_holders_do() -> None:
    assert moved(NORMALISED, normalised=False) == {
        "conv.weight": 1.0,
        "conv.bias": 1.0,
        "norm.weight": 1.0,
        "norm.bias": 1.0,
        "out.weight": 0.5,
    }


def test_a_network_without_normalisations_is_filled_all_the_same() -> None:
    assert set(moved(PLAIN, normalised=False).values()) == {0.5}
