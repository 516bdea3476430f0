"""Batch normalisation of each tier's own: averaged over the tier, sent, tested and exported with it."""

import numpy as np

from edge_client.pruning.index_sets import extract
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import downlink_groups, params_of
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import State
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec

PART = {0: (Segment(channels=2, group="inner"),)}
NAMES = ("inner.weight", "norm.weight", "norm.running_mean", "norm.running_var")
MAP = ChannelMap(
    groups={"inner": ChannelGroup(channels=2, layers=("inner",))},
    parameters={name: ParameterLayout(shape=(2,), axes=PART) for name in NAMES},
)
SMALL, WHOLE = SubModelSpec(kept={"inner": 1}), SubModelSpec()
CLIENTS = [Client(name, 1, 10) for name in "abc"]
STRATEGY = make_strategy(StrategySpec(groups=(Component(name="tier-norms"),)), (0.5, 0.0))


def update(client: str, spec: SubModelSpec, change: float, examples: int = 10) -> ClientUpdate:
    full = {name: np.full(2, change, np.float32) for name in NAMES}
    return ClientUpdate(client, spec, {"model": extract(full, spec, MAP)}, examples)


def closed(*updates: ClientUpdate, state: State | None = None) -> State:
    start = State({name: np.ones(2, np.float32) for name in NAMES})
    return close_round(STRATEGY, state or start, updates, MAP, clients=CLIENTS)


def values(state: State, spec: SubModelSpec, name: str) -> list[float]:
    return params_of(STRATEGY, state, spec, MAP)[name].tolist()


def test_normalisation_is_the_mean_over_one_tier_and_the_rest_over_all() -> None:
    # Two small devices with changes 1 (10 examples) and 4 (20), a whole one with 7 (10).
    after = closed(update("a", SMALL, 1), update("b", SMALL, 4, 20), update("c", WHOLE, 7))
    # Channel 0 of the small tier: 1 + (10 * 1 + 20 * 4) / 30; the tier does not hold channel 1.
    assert values(after, SMALL, "norm.weight") == [4, 1]
    assert values(after, SMALL, "norm.running_mean") == [4, 1]
    assert values(after, WHOLE, "norm.weight") == [8, 8]
    # Shared: 1 + (10 * 1 + 20 * 4 + 10 * 7) / 40, and 1 + 7 for the channel of the whole device alone.
    assert values(after, SMALL, "inner.weight") == values(after, WHOLE, "inner.weight") == [5, 8]


def test_a_device_receives_the_normalisation_of_its_tier() -> None:
    after = closed(update("a", SMALL, 1), update("c", WHOLE, 7))
    small, whole = (downlink_groups(STRATEGY, after, spec, MAP)["model"] for spec in (SMALL, WHOLE))
    assert small["norm.weight"].tolist() == [2]
    assert small["inner.weight"].tolist() == [5]
    assert whole["norm.weight"].tolist() == [8, 8]


def test_a_tier_that_has_not_trained_begins_with_the_global_models_normalisation() -> None:
    after = closed(update("c", WHOLE, 7))
    assert values(after, SMALL, "norm.weight") == [8, 8]
    later = closed(update("a", SMALL, 1), state=after)
    assert values(later, SMALL, "norm.weight") == [9, 8]
    assert values(later, WHOLE, "norm.weight") == [8, 8]


def test_without_the_full_tier_the_global_models_normalisation_stays() -> None:
    after = closed(update("a", SMALL, 1))
    assert after.params["norm.weight"].tolist() == [1, 1]
    assert after.params["inner.weight"].tolist() == [2, 1]


def test_an_equal_order_of_channels_is_not_needed_for_a_tier() -> None:
    # Two devices of one tier that keep unlike channels.
    second = SubModelSpec(kept={"inner": (1,)})
    after = closed(update("a", SMALL, 1), update("b", second, 5))
    assert values(after, SMALL, "norm.weight") == values(after, second, "norm.weight") == [2, 6]
