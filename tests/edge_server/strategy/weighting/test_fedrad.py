"""FedRAD's dynamic aggregation: equation 2, one step of NeuNet, and when it is FedAvg; calculated by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from edge_server.config.load import load_config
from edge_server.strategy.aggregation.updates import ClientUpdate, to_global
from edge_server.strategy.closing import close_round, load_checkpoint, save_checkpoint
from edge_server.strategy.components import make_strategy
from edge_server.strategy.selection.policies import RoundResult
from edge_server.strategy.weighting import fedrad
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update

STATIC = fedrad.FedRad(dynamic=False)
ONE_UNIT = {"slope": np.array([1.0]), "bias": np.array([0.0]), "out": np.array([0.5])}


def reported(client: str, examples: int, **metrics: float) -> ClientUpdate:
    return replace(update(client, arrays(0), examples=examples), metrics=metrics)


def sent(*sources: ClientUpdate):
    return [to_global(source, MAP) for source in sources]


def learned(weighting: fedrad.FedRad, before, *sources: ClientUpdate):
    updates = sent(*sources)
    weights = {source.client: 1 / len(sources) for source in sources}
    return weighting.observe(before, RoundResult(1, updates, weights, before=arrays(0), after=arrays(0)))


UNLIKE = (
    reported("a", 30, accuracy=0.8, received_loss=1.0),
    reported("b", 10, accuracy=0.4, received_loss=3.0),
)


# --- equations 1 and 2 ---
def test_weights_follow_squared_accuracy_and_average_to_one_over_the_examples():
    # acc^2 = 0.64, 0.16; N_k / N = 3/4, 1/4: 0.75 * 0.64 + 0.25 * 0.16 = 0.52. W = 0.64 / 0.52 = 16/13 and
    # 0.16 / 0.52 = 4/13, and W[k] N_k / N = 12/13 and 1/13.
    assert fedrad.first_weights(UNLIKE) == pytest.approx([16 / 13, 4 / 13])
    assert STATIC.weigh(None, sent(*UNLIKE)) == pytest.approx([12 / 13, 1 / 13])


def test_a_client_without_accuracy_counts_as_the_mean_of_the_others():
    # Accuracies 0.8, 0.4 and their mean 0.6: squares 0.64, 0.16, 0.36, with equal shares.
    three = [reported("a", 5, accuracy=0.8), reported("b", 5, accuracy=0.4), reported("c", 5)]
    assert fedrad.metric_per_client(three, "accuracy") == pytest.approx([0.8, 0.4, 0.6])
    assert STATIC.weigh(None, sent(*three)) == pytest.approx([0.64 / 1.16, 0.16 / 1.16, 0.36 / 1.16])


@pytest.mark.parametrize("metrics", [{}, {"accuracy": 0.0}], ids=["no accuracy reported", "accuracy zero"])
@pytest.mark.parametrize("weighting", [fedrad.FedRad(), STATIC], ids=["dynamic", "static"])
def test_without_any_accuracy_the_examples_decide(weighting, metrics):
    both = sent(reported("a", 30, **metrics), reported("b", 10, **metrics))
    assert weighting.weigh(None, both) == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("weighting", [fedrad.FedRad(), STATIC], ids=["dynamic", "static"])
def test_equal_measurements_give_fedavg(weighting):
    equal = [
        reported(name, n, accuracy=0.7, received_loss=2.0) for name, n in (("a", 10), ("b", 20), ("c", 70))
    ]
    net = {name: array + 1.5 for name, array in fedrad.new_net(8, 0).items()}
    assert weighting.weigh(net, sent(*equal)) == pytest.approx([0.1, 0.2, 0.7])


# --- NeuNet ---
def test_an_untrained_network_changes_nothing():
    share, first = np.array([0.75, 0.25]), np.array([16 / 13, 4 / 13])
    assert fedrad.apply_net(fedrad.new_net(8, seed=3), share, first) == pytest.approx([12 / 13, 1 / 13])


def test_the_output_multiplies_each_weight_before_normalisation():
    # W = 1.6 and 0.4 with equal shares, one unit: z = 0.5 tanh(1.6) and 0.5 tanh(0.4).
    one, other = 0.8 * math.exp(0.5 * math.tanh(1.6)), 0.2 * math.exp(0.5 * math.tanh(0.4))
    assert fedrad.apply_net(ONE_UNIT, np.array([0.5, 0.5]), np.array([1.6, 0.4])) == pytest.approx(
        [one / (one + other), other / (one + other)]
    )


def test_one_step_of_backpropagation_matches_the_calculation():
    # out = 0, so W' = W: weights v = 0.8 and 0.2, L = 0.8 * 1 + 0.2 * 3 = 1.4. dL/dz = 0.8 (1 - 1.4) = -0.32
    # and 0.2 (3 - 1.4) = 0.32. dL/dout = -0.32 tanh(1.6) + 0.32 tanh(0.4); times out = 0, the hidden layer's
    # gradients are 0.
    net = {**ONE_UNIT, "out": np.array([0.0])}
    step = fedrad.gradient(net, np.array([0.5, 0.5]), np.array([1.6, 0.4]), np.array([1.0, 3.0]))
    assert step["out"] == pytest.approx([-0.32 * math.tanh(1.6) + 0.32 * math.tanh(0.4)])
    assert (step["slope"].tolist(), step["bias"].tolist()) == ([0], [0])


def test_the_gradient_equals_that_of_autograd():
    random = np.random.default_rng(5)
    net = {name: random.normal(size=4) for name in ("slope", "bias", "out")}
    share, first = np.array([0.5, 0.3, 0.2]), np.array([1.1, 0.9, 0.9])
    losses = np.array([0.5, 2.0, 1.0])
    leaf = {name: torch.tensor(array, requires_grad=True) for name, array in net.items()}
    units = torch.tanh(torch.outer(torch.tensor(first), leaf["slope"]) + leaf["bias"])
    raised = torch.tensor(share * first) * torch.exp(units @ leaf["out"])
    (raised / raised.sum() @ torch.tensor(losses)).backward()
    for name, step in fedrad.gradient(net, share, first, losses).items():
        np.testing.assert_allclose(step, leaf[name].grad.numpy(), rtol=1e-9)


def test_learning_moves_weight_to_clients_with_low_loss():
    weighting, first = fedrad.FedRad(), STATIC.weigh(None, sent(*UNLIKE))
    once = weighting.weigh(None, sent(*UNLIKE))
    net = learned(weighting, None, *UNLIKE)
    twice = weighting.weigh(net, sent(*UNLIKE))
    # The accurate client has the lower loss here, so each step of the network trusts it more.
    assert first[0] < once[0] < twice[0] < 1


def test_clients_may_join_later():
    weighting = fedrad.FedRad()
    net = learned(weighting, None, *UNLIKE)
    more = sent(*UNLIKE, reported("c", 20, accuracy=0.9, received_loss=0.5), reported("d", 20))
    weights = weighting.weigh(net, more)
    assert weights.shape == (4,)
    assert weights.sum() == pytest.approx(1)


def test_one_clients_loss_does_not_destabilise_the_network():
    # The vector (3, 4) has length 5 and is shortened to (0.6, 0.8). A length of at most 1 is not changed.
    assert fedrad.clip_gradient({"slope": np.array([3.0]), "out": np.array([4.0])}) == {
        "slope": pytest.approx([0.6]),
        "out": pytest.approx([0.8]),
    }
    assert fedrad.clip_gradient({"out": np.array([0.5])})["out"].tolist() == [0.5]
    wild = (UNLIKE[0], reported("b", 10, accuracy=1.0, received_loss=1e9))
    net = None
    for _ in range(50):
        net = learned(fedrad.FedRad(), net, *wild)
    assert all(np.abs(array).max() < 10 for array in net.values())
    assert np.isfinite(fedrad.FedRad().weigh(net, sent(*wild))).all()


def test_equal_seeds_draw_equal_networks():
    one, same, other = fedrad.new_net(8, 1), fedrad.new_net(8, 1), fedrad.new_net(8, 2)
    assert all((one[name] == same[name]).all() for name in one)
    assert (one["slope"] != other["slope"]).all()


def test_the_network_survives_a_checkpoint(tmp_path):
    strategy = make_strategy(StrategySpec(weighting=Component(name="fedrad")), RATIOS)
    after = close_round(strategy, state(), UNLIKE, MAP)
    save_checkpoint(tmp_path / "state", after)
    again = load_checkpoint(tmp_path / "state", {"model": after.params})
    assert all((again.weighting[name] == array).all() for name, array in after.weighting.items())
    assert (
        close_round(strategy, again, UNLIKE, MAP).observed
        == close_round(strategy, after, UNLIKE, MAP).observed
    )


@pytest.mark.parametrize(
    "options", [{"learning_rate": -1.0}, {"hidden": 0}, {"steps": 0}, {"seed": -1}], ids=str
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match="must be at least 0, hidden and steps at least 1"):
        make_strategy(StrategySpec(weighting=Component(name="fedrad", options=options)), RATIOS)


def test_the_recipes_use_each_part_and_both_together():
    both, intervals, weights = (load_config(n) for n in ("fedrad", "fedrad-interval", "fedrad-aggregation"))
    assert both.strategy.local_epochs == intervals.strategy.local_epochs
    assert both.strategy.weighting == weights.strategy.weighting
    assert both.simulation.hold_out == weights.simulation.hold_out == 0.2
