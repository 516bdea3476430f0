"""SCAFFOLD on the server, and server and devices together; numbers calculated by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.training.objectives.base import TrainingContext
from edge_client.training.objectives.registry import build_objectives
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.registry import Control
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import start_state
from schemas.strategy import Component, StrategySpec, TrainingPlan
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from tests.edge_server.strategy.network import CLIENTS, MAP, RATIOS, arrays, update
from tests.slow import slow

SCAFFOLD = StrategySpec(
    objectives=(Component(name="scaffold"),),
    groups=(Component(name="control"),),
    weighting=Component(name="equal"),
)
WHOLE = SubModelSpec()
PREFIX = SubModelSpec(kept={"hidden": 2})


def control(bias: list[float], spec: SubModelSpec = WHOLE) -> dict[str, np.ndarray]:
    """A change of the control that is 0 except in hidden.bias, in the sub-model's shapes."""
    kept = spec.count("hidden", 5)
    return {
        "hidden.weight": np.zeros((kept, 2), np.float32),
        "hidden.bias": np.array(bias, np.float32),
        "out.weight": np.zeros((2, kept), np.float32),
        "out.bias": np.zeros(2, np.float32),
    }


def nothing() -> dict[str, np.ndarray]:
    return {name: np.zeros_like(array) for name, array in arrays(0).items()}


def closed(*updates: ClientUpdate, clients=CLIENTS, **more) -> np.ndarray:
    """hidden.bias of c after one round from c = 0."""
    strategy = make_strategy(SCAFFOLD.model_copy(update=more), RATIOS)
    after = close_round(strategy, start_state(strategy, arrays(0)), updates, MAP, clients=clients)
    return after.groups["control"]["hidden.bias"]


def test_the_control_moves_by_the_sum_of_changes_divided_by_the_number_of_clients():
    # Two of six clients sent 6 and 3: c = (6 + 3) / 6 where both hold the channel, 6 / 6 where only c0 does.
    sent = [
        update("c0", nothing(), control=control([6, 6, 6, 6, 6])),
        update("c1", nothing(), spec=PREFIX, control=control([3, 3], PREFIX)),
    ]
    assert closed(*sent).tolist() == [1.5, 1.5, 1, 1, 1]


def test_the_control_remains_the_mean_of_all_clients_after_more_clients_join():
    # Both of two clients send c_i = 1: c = 1. Two more join with c_i = 0: the mean of the four is 1/2.
    # One of the new clients then changes by 2: (1 + 1 + 2 + 0) / 4 = 1.
    strategy = make_strategy(SCAFFOLD, RATIOS)
    few = [update(name, nothing(), control=control([1] * 5)) for name in ("c0", "c1")]
    first = close_round(strategy, start_state(strategy, arrays(0)), few, MAP, clients=CLIENTS[:2])
    assert first.groups["control"]["hidden.bias"].tolist() == [1] * 5
    quiet = [update("c2", nothing(), control=control([0] * 5))]
    second = close_round(strategy, first, quiet, MAP, clients=CLIENTS[:4])
    assert second.groups["control"]["hidden.bias"].tolist() == [0.5] * 5
    third = close_round(
        strategy, second, [update("c3", nothing(), control=control([2] * 5))], MAP, clients=CLIENTS[:4]
    )
    assert third.groups["control"]["hidden.bias"].tolist() == [1] * 5
    assert downlink_groups(strategy, third, WHOLE, MAP)["control"].keys() == MAP.parameters.keys()


def test_a_client_that_sent_no_control_counts_in_the_number_of_clients():
    sent = [update("c0", nothing(), control=control([6] * 5)), update("c1", nothing())]
    assert closed(*sent).tolist() == [1] * 5
    # Without a list of known clients, only the senders are counted: 6 / 2.
    assert closed(*sent, clients=()).tolist() == [3] * 5


def test_every_device_receives_its_part_of_the_control():
    strategy = make_strategy(SCAFFOLD, RATIOS)
    held = control([1, 2, 3, 4, 5])
    state = start_state(strategy, arrays(0))
    assert not any(array.any() for array in downlink_groups(strategy, state, PREFIX, MAP)["control"].values())
    down = Control().down(held, PREFIX, MAP)
    assert down["hidden.bias"].tolist() == [1, 2]
    assert down["out.weight"].shape == (2, 2)


def test_equal_weights_ignore_the_number_of_examples():
    strategy = make_strategy(SCAFFOLD, RATIOS)
    ones = {name: np.ones_like(array) for name, array in arrays(0).items()}
    sent = [update("a", ones, examples=1), update("b", nothing(), examples=99)]
    after = close_round(strategy, start_state(strategy, nothing()), sent, MAP)
    # The plain mean of 1 and 0.
    assert all((array == 0.5).all() for array in after.params.values())
    assert after.observed["weights"] == {"a": 0.5, "b": 0.5}


def test_a_client_without_examples_does_not_shorten_the_step():
    strategy = make_strategy(SCAFFOLD, RATIOS)
    ones = {name: np.ones_like(array) for name, array in arrays(0).items()}
    sent = [update("a", ones, examples=1), update("b", nothing(), examples=0)]
    after = close_round(strategy, start_state(strategy, nothing()), sent, MAP)
    assert after.observed["weights"] == {"a": 1, "b": 0}
    assert all((array == 1).all() for array in after.params.values())


# --- server and devices, with one parameter to learn ---
ONE = ChannelMap(groups={}, parameters={"w": ParameterLayout(shape=(1,))})
PAIR = (Client("flat", 1), Client("steep", 1))


class OneWeight(nn.Module):
    def __init__(self, start: np.ndarray) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.from_numpy(start.copy()))


def loss(name: str, w: torch.Tensor) -> torch.Tensor:
    """w^2 and (w - 3)^2 / 2: their mean has its minimum at 1."""
    return w**2 if name == "steep" else (w - 3) ** 2 / 2


class Pair:
    """A server and two clients, which by default take five steps at rate 0.1 in each round."""

    def __init__(
        self, spec: StrategySpec, first: float, *, momentum: float = 0.0, rate: float = 0.1, steps: int = 5
    ) -> None:
        self.strategy = make_strategy(spec, (0.0,))
        self.state = start_state(self.strategy, {"w": np.array([first], np.float32)})
        self.plan = TrainingPlan(learning_rate=rate, momentum=momentum, participants=2)
        self.steps = steps
        self.kept: dict[str, dict] = {"steep": {}, "flat": {}}

    @property
    def w(self) -> float:
        return float(self.state.params["w"][0])

    def local(self, name: str) -> ClientUpdate:
        received = downlink_groups(self.strategy, self.state, SubModelSpec(), ONE)
        module = OneWeight(received["model"]["w"])
        objectives = build_objectives(self.strategy.objectives)
        context = TrainingContext(self.plan, received=received, kept=self.kept[name], steps=self.steps)
        for objective in objectives:
            objective.setup(module, context)
        optimizer = torch.optim.SGD(
            module.parameters(), lr=self.plan.learning_rate, momentum=self.plan.momentum
        )
        for _ in range(self.steps):
            optimizer.zero_grad()
            loss(name, module.w).sum().backward()
            for objective in objectives:
                objective.correct()
            optimizer.step()
        sent, self.kept[name] = {}, {}
        for objective in objectives:
            sent.update(objective.finish())
            self.kept[name].update(objective.keep())
        delta = {"w": module.w.detach().numpy() - received["model"]["w"]}
        return ClientUpdate(name, SubModelSpec(), {"model": delta, **sent}, 10)

    def rounds(self, count: int) -> None:
        for _ in range(count):
            sent = [self.local(name) for name in self.kept]
            self.state = close_round(self.strategy, self.state, sent, ONE, clients=PAIR)


def test_one_round_of_server_and_devices_matches_the_calculation():
    # From 1, without controls: steep ends at 0.8^5 = 0.32768, flat at 3 - 2 * 0.9^5 = 1.81902; mean 1.07335.
    # c_steep = (1 - 0.32768) / 0.5 = 1.34464, c_flat = (1 - 1.81902) / 0.5 = -1.63804; c is their mean.
    pair = Pair(SCAFFOLD, 1.0)
    pair.rounds(1)
    assert pair.w == pytest.approx(1.07335)
    assert pair.kept["steep"]["own-control"]["w"] == pytest.approx(1.34464)
    assert pair.kept["flat"]["own-control"]["w"] == pytest.approx(-1.63804)
    assert pair.state.groups["control"]["w"] == pytest.approx(-0.1467)


@pytest.mark.parametrize(
    ("momentum", "rate", "steps"), [(0.0, 0.1, 5), slow(0.5, 0.1, 5), slow(0.9, 0.1, 5), slow(0.9, 0.001, 20)]
)
def test_scaffold_converges_to_the_optimum_of_the_mean(momentum, rate, steps):
    """In the last case the paper's literal formula, with momentum, diverges."""
    pair = Pair(SCAFFOLD, 0.0, momentum=momentum, rate=rate, steps=steps)
    pair.rounds(200)
    assert pair.w == pytest.approx(1.0, abs=1e-3)
    # The gradients there: 2 w and w - 3.
    assert pair.kept["steep"]["own-control"]["w"] == pytest.approx(2.0, abs=1e-2)
    assert pair.kept["flat"]["own-control"]["w"] == pytest.approx(-2.0, abs=1e-2)
    assert pair.state.groups["control"]["w"] == pytest.approx(0.0, abs=1e-2)


def test_fedavg_converges_to_another_point():
    # w = (0.32768 w + 3 + 0.59049 (w - 3)) / 2, so w = 1.22853 / 1.08183 = 1.13560.
    pair = Pair(StrategySpec(weighting=Component(name="equal")), 0.0)
    pair.rounds(200)
    assert pair.w == pytest.approx(1.1356, abs=1e-3)
