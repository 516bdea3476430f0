"""Static batch normalisation on the server: the last round measures, and the measures become the model's."""

import numpy as np
import pytest

from edge_client.pruning.index_sets import extract
from edge_server.config.load import load_config
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.statistics import Statistics
from edge_server.strategy.planning import cut, downlink_groups, params_of
from edge_server.strategy.pruning.trained_part import find_trained_parts
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Network, State, Strategy
from schemas.errors import PeerError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from tests.edge_server.strategy.network import NETWORK

PART = {0: (Segment(channels=2, group="norm"),)}
NAMES = ("norm.weight", "norm.running_mean", "norm.running_var")
MAP = ChannelMap(
    groups={"norm": ChannelGroup(channels=2, layers=("norm",))},
    parameters={name: ParameterLayout(shape=(2,), axes=PART) for name in NAMES},
)
NORMALISED = Network(NETWORK.entry, MAP)
SMALL = SubModelSpec(kept={"norm": 1})
CLIENTS = [Client("a", 1, 10), Client("b", 1, 30)]


def strategy(rounds: int = 2) -> Strategy:
    spec = StrategySpec(
        objectives=(Component(name="masked-loss"), Component(name="batch-statistics")),
        groups=(Component(name="statistics"),),
        server_optimizer=Component(name="momentum", options={"beta": 0.9}),
    )
    return make_strategy(spec, (0.5, 0.0), rounds=rounds)


def state(done: int) -> State:
    values = ([1.0, 1.0], [5.0, 6.0], [7.0, 8.0])
    return State({name: np.array(own, np.float32) for name, own in zip(NAMES, values, strict=True)}, done)


def measured(client: str, spec: SubModelSpec, examples: int, mean: float, variance: float) -> ClientUpdate:
    full = {
        "norm.running_mean": np.full(2, mean, np.float32),
        "norm.running_var": np.full(2, variance, np.float32),
    }
    part = ChannelMap(groups=MAP.groups, parameters={name: MAP.parameters[name] for name in full})
    return ClientUpdate(client, spec, {"model": {}, "statistics": extract(full, spec, part)}, examples)


def statistics(count: int, mean: float) -> dict[str, np.ndarray]:
    return {
        "norm.running_mean": np.full(count, mean, np.float32),
        "norm.running_var": np.ones(count, np.float32),
    }


def test_devices_train_in_every_round_but_the_last() -> None:
    training = cut(strategy(), state(0), NORMALISED, 0.5)
    assert training.train
    assert [objective.name for objective in training.objectives] == ["masked-loss"]
    last = cut(strategy(), state(1), NORMALISED, 0.5)
    assert not last.train
    assert last.returned == ()
    assert last.spec == training.spec
    assert [objective.name for objective in last.objectives] == ["batch-statistics"]


def test_frozen_statistics_are_neither_measured_nor_changed() -> None:
    layers = {
        name.replace("norm", layer): MAP.parameters[name] for layer in ("fixed", "norm") for name in NAMES
    }
    both = ChannelMap(groups=MAP.groups, parameters=layers)
    parts = find_trained_parts([["norm", "norm.running_*"], ["norm"]], both, lambda: "norm")
    assert cut(strategy(), state(1), Network(NETWORK.entry, both, parts), 0.5).trained == NAMES
    before = State({name: np.full(2, 9, np.float32) for name in layers}, 1)
    update = measured("a", SubModelSpec(), 10, 1.0, 2.0)
    after = close_round(strategy(), before, [update], both, clients=CLIENTS).params
    assert after["norm.running_mean"].tolist() == [1, 1]
    assert after["fixed.running_mean"].tolist() == [9, 9]


def test_a_network_without_statistics_is_trained_in_the_last_round_too() -> None:
    assert cut(strategy(), state(1), NETWORK, 0.6).train


def test_the_statistics_are_those_of_all_examples_together() -> None:
    updates = [measured("a", SubModelSpec(), 10, 1.0, 2.0), measured("b", SubModelSpec(), 30, 5.0, 4.0)]
    after = close_round(strategy(), state(1), updates, MAP, clients=CLIENTS).params
    # Mean (10 * 1 + 30 * 5) / 40 = 4; mean square (10 * 3 + 30 * 29) / 40 = 22.5, less 16.
    assert after["norm.running_mean"].tolist() == [4, 4]
    assert after["norm.running_var"].tolist() == [6.5, 6.5]
    assert after["norm.weight"].tolist() == [1, 1]


def test_every_tier_has_statistics_of_its_own() -> None:
    updates = [measured("a", SMALL, 10, 1.0, 2.0), measured("b", SubModelSpec(), 30, 5.0, 4.0)]
    closed = close_round(strategy(), state(1), updates, MAP, clients=CLIENTS)
    small, whole = (params_of(strategy(), closed, spec, MAP) for spec in (SMALL, SubModelSpec()))
    assert small["norm.running_mean"].tolist() == [1, 6]
    assert whole["norm.running_mean"].tolist() == closed.params["norm.running_mean"].tolist() == [5, 5]
    assert small["norm.weight"].tolist() == [1, 1]
    # The tier's task, test and export have them.
    assert downlink_groups(strategy(), closed, SMALL, MAP)["model"]["norm.running_var"].tolist() == [2]


def test_without_the_full_tier_all_devices_that_hold_a_channel_count() -> None:
    three = ChannelMap(
        groups={"norm": ChannelGroup(channels=3, layers=("norm",))},
        parameters={
            name: ParameterLayout(shape=(3,), axes={0: (Segment(channels=3, group="norm"),)})
            for name in NAMES
        },
    )
    start = State({name: np.full(3, 9, np.float32) for name in NAMES}, 1)
    one, two = SubModelSpec(kept={"norm": 1}), SubModelSpec(kept={"norm": 2})
    updates = [
        ClientUpdate(client, spec, {"model": {}, "statistics": statistics(count, mean)}, 10)
        for client, spec, count, mean in (("a", one, 1, 1.0), ("b", two, 2, 3.0))
    ]
    after = close_round(strategy(), start, updates, three, clients=CLIENTS).params
    assert after["norm.running_mean"].tolist() == [2, 3, 9]


def test_statistics_that_a_device_sends_in_a_round_of_training_are_ignored() -> None:
    liar = measured("a", SMALL, 10, 1e5, 2.0)
    honest = ClientUpdate("b", SMALL, {"model": {"norm.weight": np.ones(1, np.float32)}}, 30)
    after = close_round(strategy(), state(0), [liar, honest], MAP, clients=CLIENTS).params
    assert after["norm.running_mean"].tolist() == [5, 6]


def test_a_round_of_training_drops_the_statistics_of_an_earlier_model() -> None:
    measuring = close_round(strategy(), state(1), [measured("a", SMALL, 10, 1.0, 2.0)], MAP, clients=CLIENTS)
    trained = ClientUpdate("b", SMALL, {"model": {"norm.running_mean": np.ones(1, np.float32)}}, 30)
    after = close_round(strategy(), measuring, [trained], MAP, clients=CLIENTS)
    own = params_of(strategy(), after, SMALL, MAP)
    assert own["norm.running_mean"].tolist() == after.params["norm.running_mean"].tolist() == [2, 6]


def test_nothing_is_measured_where_updates_are_masked() -> None:
    plain = load_config("heterofl", ["num-clients=20"])
    masked = load_config("heterofl", ["num-clients=20", "privacy.secure-aggregation=true"])
    assert [objective.name for objective in plain.make_strategy().measuring] == ["batch-statistics"]
    assert masked.make_strategy().measuring == ()


def test_the_server_optimizer_does_not_step_where_nobody_trained() -> None:
    before = state(1)
    before = State(before.params, 1, server_optimizer={"momentum": {"norm.weight": np.ones(2, np.float32)}})
    after = close_round(strategy(), before, [measured("a", SMALL, 10, 1.0, 2.0)], MAP, clients=CLIENTS)
    assert after.params["norm.weight"].tolist() == [1, 1]
    assert after.server_optimizer == before.server_optimizer


def test_channels_that_nobody_measured_keep_their_statistics() -> None:
    after = close_round(
        strategy(), state(1), [measured("a", SMALL, 10, 1.0, 2.0)], MAP, clients=CLIENTS
    ).params
    assert after["norm.running_mean"].tolist() == [1, 6]
    assert after["norm.running_var"].tolist() == [2, 8]


def test_a_variance_below_zero_is_refused() -> None:
    with pytest.raises(PeerError, match="variances below 0"):
        Statistics().check({"norm.running_var": np.array([-0.1], np.float32)}, 5)
