"""Static batch normalisation on the server: the last round measures, and the measures become the model's."""

import numpy as np
import pytest

from edge_client.pruning.slicing import extract
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.build import make_strategy
from edge_server.strategy.groups.statistics import Statistics
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Network, State, Strategy, close, cut
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


def test_devices_train_in_every_round_but_the_last() -> None:
    training = cut(strategy(), state(0), NORMALISED, 0.5)
    assert training.train
    assert [objective.name for objective in training.objectives] == ["masked-loss"]
    last = cut(strategy(), state(1), NORMALISED, 0.5)
    assert not last.train
    assert last.returned == ()
    assert last.spec == training.spec
    assert [objective.name for objective in last.objectives] == ["batch-statistics"]


def test_a_network_without_statistics_is_trained_in_the_last_round_too() -> None:
    assert cut(strategy(), state(1), NETWORK, 0.6).train


def test_the_statistics_are_those_of_all_examples_together() -> None:
    updates = [measured("a", SMALL, 10, 1.0, 2.0), measured("b", SubModelSpec(), 30, 5.0, 4.0)]
    before = state(1)
    after = close(strategy(), before, updates, MAP, clients=CLIENTS).params
    # Channel 0: mean (10 * 1 + 30 * 5) / 40 = 4; mean square (10 * 3 + 30 * 29) / 40 = 22.5, less 16.
    assert after["norm.running_mean"].tolist() == [4, 5]
    assert after["norm.running_var"].tolist() == [6.5, 4]
    assert after["norm.weight"].tolist() == [1, 1]


def test_the_server_optimizer_does_not_step_where_nobody_trained() -> None:
    before = state(1)
    before = State(before.params, 1, server_optimizer={"momentum": {"norm.weight": np.ones(2, np.float32)}})
    after = close(strategy(), before, [measured("a", SMALL, 10, 1.0, 2.0)], MAP, clients=CLIENTS)
    assert after.params["norm.weight"].tolist() == [1, 1]
    assert after.server_optimizer == before.server_optimizer


def test_channels_that_nobody_measured_keep_their_statistics() -> None:
    after = close(strategy(), state(1), [measured("a", SMALL, 10, 1.0, 2.0)], MAP, clients=CLIENTS).params
    assert after["norm.running_mean"].tolist() == [1, 6]
    assert after["norm.running_var"].tolist() == [2, 8]


def test_a_variance_below_zero_is_refused() -> None:
    with pytest.raises(PeerError, match="variances below 0"):
        Statistics().check({"norm.running_var": np.array([-0.1], np.float32)}, 5)
