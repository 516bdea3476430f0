"""`fill-with-global` by hand: two devices, one without channel 1; both move what they hold by 1."""

import numpy as np
import pytest

from edge_client.pruning.index_sets import extract
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError
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


def moved(
    layouts: dict[str, ParameterLayout], *, start: float = 0.0, lacking: int = 10, **options: bool | float
) -> dict[str, float]:
    """How far channel 1 of each parameter moves from `start`; those without channels are left out.

    The device that has the channel counts 10 examples, the other `lacking`.
    """
    channels = ChannelMap(groups={"c": ChannelGroup(channels=2, layers=("conv",))}, parameters=layouts)
    before = {name: np.full(layout.shape, start, np.float32) for name, layout in layouts.items()}
    ones = {name: np.ones_like(array) for name, array in before.items()}
    updates = [
        ClientUpdate(name, spec, {"model": extract(ones, spec, channels)}, examples)
        for name, spec, examples in (("a", SubModelSpec(), 10), ("b", SubModelSpec(kept={"c": 1}), lacking))
    ]
    fill = Component(name="fill-with-global", options=options)
    strategy = make_strategy(StrategySpec(transforms=(fill,)), (0.5, 0.0))
    after = close_round(strategy, State(params=before), updates, channels)
    return {
        name: float(after.params[name].ravel()[1]) - start for name in layouts if after.params[name].size > 1
    }


@pytest.mark.parametrize("layouts", [PLAIN, NORMALISED])
def test_every_layer_is_filled_if_not_told_otherwise(layouts: dict[str, ParameterLayout]) -> None:
    assert set(moved(layouts).values()) == {0.5}


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


@pytest.mark.parametrize(
    ("lacking", "expected"), [(10, 0.5 - 0.1 * 0.5**2 * 2), (30, 0.25 - 0.1 * 0.75**2 * 2)]
)
def test_what_is_filled_decays_by_the_square_of_the_share_of_the_clients_that_lack_it(
    lacking: int, expected: float
) -> None:
    found = moved(PLAIN, start=2.0, lacking=lacking, decay=0.1)
    assert list(found.values()) == pytest.approx([expected] * len(found))


def test_what_all_clients_hold_or_nobody_fills_does_not_decay() -> None:
    statistics = {
        "norm.running_mean": ParameterLayout(shape=(2,), axes={0: CHANNEL}),
        "norm.running_var": ParameterLayout(shape=(2,), axes={0: CHANNEL}),
    }
    filled = moved({**NORMALISED, **statistics}, start=2.0, decay=0.1)
    assert {filled.pop(name) for name in statistics} == {0.5}
    assert list(filled.values()) == pytest.approx([0.45] * len(filled))
    assert moved(NORMALISED, start=2.0, normalised=False, decay=0.1) == moved(NORMALISED, normalised=False)


def test_of_networks_with_normalisations_these_decay_alone() -> None:
    still = moved(NORMALISED, normalised=False)
    found = moved(NORMALISED, start=2.0, normalised=False, decay=0.2, norm_decay=0.1)
    assert found.pop("norm.weight") == found.pop("norm.bias") == pytest.approx(1 - 0.1 * 0.5**2 * 2)
    assert found == {name: still[name] for name in found}


def test_a_decay_of_a_whole_model_is_refused() -> None:
    for name in ("decay", "norm_decay"):
        with pytest.raises(ConfigError, match=f"{name.replace('_', '-')} must be at least 0 and below 1"):
            moved(PLAIN, **{name: 1.0})
