"""The contract of every group rule: sent arrays fit the sub-model, and the state survives a checkpoint."""

import itertools

import numpy as np
import pytest

from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import expected_shapes
from edge_client.pruning.surgery import arrays_of
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round, load_checkpoint, save_checkpoint
from edge_server.strategy.components import make_component, make_strategy
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.groups.rule import MAX_ROWS, Shape
from edge_server.strategy.planning import downlink_groups
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import Network, start_state
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec

SPEC = ModelSpec(name="mlp", input_shape=(1, 4, 4), num_classes=3)
MODULE = build_model(SPEC, seed=1)
MAP = trace_channels(MODULE, SPEC.input_shape)
NETWORK = Network(entry("mlp"), MAP)
SUB_MODELS = (SubModelSpec(), SubModelSpec(kept={"linear1": 100, "linear2": 60}))
CLIENTS = [Client(f"c{k}", tier=1, examples=5) for k in range(4)]


def strategy_with(name: str):
    return make_strategy(StrategySpec(groups=(Component(name=name),)), (0.0,))


def filled(shape: Shape, seed: int) -> np.ndarray:
    """Positive rows that sum to one, so that they are also valid labels."""
    values = np.random.default_rng(seed).random([2 if size is None else size for size in shape])
    return (values / values.sum(-1, keepdims=True)).astype(np.float32)


def updates(name: str) -> list[ClientUpdate]:
    """Updates of two devices with different sub-models."""
    rule = make_component("group rule", GROUPS, Component(name=name))
    sent = []
    for k, spec in enumerate(SUB_MODELS):
        shapes = expected_shapes(spec, MAP)
        groups = {"model": {n: filled(shape, k) for n, shape in shapes.items()}}
        if rule.uplink:
            groups[rule.name] = {n: filled(shape, k) for n, shape in rule.shapes(shapes, SPEC).items()}
        sent.append(ClientUpdate(f"c{k}", spec, groups, 5))
    return sent


@pytest.mark.parametrize("name", GROUPS)
def test_the_groups_that_a_device_receives_fit_its_sub_model(name):
    strategy = strategy_with(name)
    before = start_state(strategy, arrays_of(MODULE))
    for state in (before, close_round(strategy, before, updates(name), MAP, clients=CLIENTS)):
        for spec in SUB_MODELS:
            groups = downlink_groups(strategy, state, spec, MAP)
            shapes = expected_shapes(spec, MAP)
            assert all(array.shape == shapes[n] for n, array in groups["model"].items())
            for arrays in groups.values():
                assert all(array.shape == shapes[n] for n, array in arrays.items() if n in shapes)
                assert all(np.isfinite(array).all() for array in arrays.values())


@pytest.mark.parametrize("name", GROUPS)
def test_a_rule_states_bounded_shapes_for_what_devices_send(name):
    rule = make_component("group rule", GROUPS, Component(name=name))
    shapes = rule.shapes(expected_shapes(SubModelSpec(), MAP), SPEC)
    sizes = [MAX_ROWS if size is None else size for shape in shapes.values() for size in shape]
    assert all(size >= 1 for size in sizes)


@pytest.mark.parametrize("name", GROUPS)
def test_a_round_without_the_group_equals_a_round_without_the_rule(name):
    strategy = strategy_with(name)
    before = start_state(strategy, arrays_of(MODULE))
    sent = [
        ClientUpdate(update.client, update.spec, {"model": update.groups["model"]}, 5)
        for update in updates(name)
    ]
    after = close_round(strategy, before, sent, MAP, clients=CLIENTS)
    assert after.round == 1
    plain = close_round(make_strategy(StrategySpec(), (0.0,)), before, sent, MAP, clients=CLIENTS)
    assert all(np.array_equal(array, plain.params[n]) for n, array in after.params.items())


@pytest.mark.parametrize("name", GROUPS)
def test_the_order_of_clients_is_irrelevant_to_a_group(name):
    strategy = strategy_with(name)
    before = start_state(strategy, arrays_of(MODULE))
    results = [
        close_round(strategy, before, permutation, MAP)
        for permutation in itertools.permutations(updates(name))
    ]
    rule = strategy.groups[0].name
    for n, array in results[0].groups[rule].items():
        assert np.array_equal(array, results[1].groups[rule][n])
    assert all(np.array_equal(array, results[1].params[n]) for n, array in results[0].params.items())


@pytest.mark.parametrize("name", GROUPS)
def test_a_round_after_loading_a_checkpoint_gives_the_same_group(name, tmp_path):
    strategy = strategy_with(name)
    first = close_round(
        strategy, start_state(strategy, arrays_of(MODULE)), updates(name), MAP, clients=CLIENTS
    )
    save_checkpoint(tmp_path / "state", first)
    ends = [
        close_round(strategy, state, updates(name), MAP, clients=CLIENTS)
        for state in (first, load_checkpoint(tmp_path / "state", {"model": first.params}))
    ]
    rule = strategy.groups[0].name
    assert ends[0].groups[rule].keys() == ends[1].groups[rule].keys()
    assert all(np.array_equal(array, ends[1].groups[rule][n]) for n, array in ends[0].groups[rule].items())
    assert all(np.array_equal(array, ends[1].params[n]) for n, array in ends[0].params.items())
