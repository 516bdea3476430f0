"""FedP3: which layers a device returns, which the server accepts, and how they are averaged."""

from dataclasses import replace

import numpy as np
import pytest

from edge_server.coordinator.validation.contents import examine
from edge_server.strategy.aggregation.updates import to_global
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import plan
from edge_server.strategy.pruning.interface import Evidence
from edge_server.strategy.pruning.own_parts import Layers, returned_layers, units
from schemas.errors import ConfigError, PeerError
from schemas.messages import TrainTask, Update
from schemas.strategy import Component, StrategySpec, TrainingPlan
from schemas.submodel import ChannelMap, ParameterLayout, SubModelSpec
from schemas.tensors.chunks import BlobRef
from schemas.values import ModelSpec, TrainingMetrics
from tests.edge_server.strategy.network import CLIENTS, MAP, NETWORK, RATIOS, arrays, state, update

NORM = ("weight", "bias", "running_mean", "running_var")
SHAPES = {
    "conv1.weight": (2, 1, 3, 3),
    **{f"bn1.{name}": (2,) for name in NORM},
    "blocks.0.conv.weight": (4, 2, 3, 3),
    "blocks.0.conv.bias": (4,),
    **{f"blocks.0.bn.{name}": (4,) for name in NORM},
    "blocks.1.conv.weight": (4, 4, 3, 3),
    "fc.weight": (3, 4),
    "fc.bias": (3,),
}
DEEP = ChannelMap(groups={}, parameters={n: ParameterLayout(shape=shape) for n, shape in SHAPES.items()})
UNITS = [("conv1", "bn1"), ("blocks.0.conv", "blocks.0.bn"), ("blocks.1.conv",), ("fc",)]


# --- which layers ---
def test_a_normalisation_belongs_to_the_layer_before_it():
    assert units(DEEP) == UNITS
    assert units(MAP) == [("hidden",), ("out",)]


def test_a_normalisation_that_comes_first_is_its_own_unit():
    parameters = {"norm.weight": ParameterLayout(shape=(3,)), **DEEP.parameters}
    assert units(ChannelMap(groups={}, parameters=parameters)) == [("norm",), *UNITS]


@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_the_given_number_of_layers_and_the_final_one_are_returned_in_network_order(count):
    for seed in range(10):
        names = returned_layers(DEEP, count, seed, "a")
        chosen = [unit for unit in UNITS if unit[0] in names]
        assert names == tuple(layer for unit in chosen for layer in unit)
        assert chosen[-1] == ("fc",)
        # There are only three other layers.
        assert len(chosen) == min(count, 3) + 1


def test_every_client_and_round_draws_its_own_layers_repeatably():
    drawn = {(seed, name): returned_layers(DEEP, 1, seed, name) for seed in range(8) for name in "abcd"}
    again = {(seed, name): returned_layers(DEEP, 1, seed, name) for seed, name in drawn}
    assert drawn == again
    assert {names[0] for (_, name), names in drawn.items() if name == "a"} == {u[0] for u in UNITS[:3]}
    assert len({drawn[0, name] for name in "abcd"} | {drawn[1, name] for name in "abcd"}) > 1


@pytest.mark.parametrize("channels", ["index", "random"])
def test_the_tiers_ratio_applies_to_every_layer_whichever_layers_are_returned(channels):
    options = {"layers": 0, "channels": channels}
    strategy = make_strategy(StrategySpec(pruner=Component(name="layers", options=options)), RATIOS)
    assignments = plan(strategy, state(), CLIENTS, NETWORK, np.random.default_rng(0)).assignments
    # Ratios 0.6, 0.2 and 0 of five channels keep 2, 4 and 5.
    kept = [assignments[f"c{k}"].cut.spec.count("hidden", 5) for k in range(3)]
    assert kept == [2, 4, 5]
    assert all(assignment.cut.returned == ("out",) for assignment in assignments.values())


def test_impossible_options_are_refused():
    for options, message in (({"layers": -1}, "at least 0"), ({"channels": "best"}, "not 'best'")):
        with pytest.raises(ConfigError, match=message):
            make_strategy(StrategySpec(pruner=Component(name="layers", options=options)), RATIOS)


# --- returned layers ---
SMALL = SubModelSpec(kept={"hidden": 2})


def sent(client: str, value: float, spec: SubModelSpec, layers: tuple[str, ...], examples: int):
    """An update that moves all of its sub-model by `value` and contains only these layers."""
    whole = update(
        client, {n: np.full_like(a, value) for n, a in arrays(0).items()}, spec=spec, examples=examples
    )
    model = {n: a for n, a in whole.groups["model"].items() if n.rpartition(".")[0] in layers}
    return replace(whole, groups={"model": model})


def test_the_returned_layers_of_the_sub_model_are_covered_and_nothing_else():
    global_update = to_global(sent("weak", 1, SMALL, ("out",), 10), MAP)
    assert global_update.coverage["out.weight"].astype(int).tolist() == [[1, 1, 0, 0, 0]] * 2
    assert global_update.coverage["out.bias"].all()
    assert not global_update.coverage["hidden.weight"].any()
    assert not global_update.coverage["hidden.bias"].any()


def test_every_layer_is_the_mean_over_its_senders():
    strategy, before = make_strategy(StrategySpec(pruner=Component(name="layers")), RATIOS), state()
    updates = [sent("weak", 1, SMALL, ("out",), 10), sent("strong", 5, SubModelSpec(), ("hidden", "out"), 30)]
    after = close_round(strategy, before, updates, MAP).params
    change = {name: after[name] - before.params[name] for name in after}
    # Only `strong` sent the target layer: 5 everywhere. Both sent the final layer where `weak` has channels:
    # 0.25 * 1 + 0.75 * 5 = 4; elsewhere only `strong` did.
    np.testing.assert_allclose(change["hidden.bias"], [5] * 5, rtol=1e-6)
    np.testing.assert_allclose(change["hidden.weight"], [[5, 5]] * 5, rtol=1e-6)
    np.testing.assert_allclose(change["out.weight"], [[4, 4, 5, 5, 5]] * 2, rtol=1e-6)
    np.testing.assert_allclose(change["out.bias"], [4, 4], rtol=1e-6)


def test_a_layer_that_nobody_sent_does_not_change():
    strategy, before = make_strategy(StrategySpec(pruner=Component(name="layers")), RATIOS), state()
    updates = [sent("weak", 1, SMALL, ("out",), 10), sent("strong", 5, SubModelSpec(), ("out",), 30)]
    after = close_round(strategy, before, updates, MAP).params
    assert (after["hidden.weight"] == before.params["hidden.weight"]).all()
    assert (after["out.bias"] != before.params["out.bias"]).all()


# --- what the server accepts ---
def examined(layers: tuple[str, ...]) -> None:
    """Examine an update with these layers for a task that requests only the final layer."""
    common = {"federation": "home", "run": "run-1", "round": 1, "attempt": 1}
    cut = Layers(layers=0).cut({"hidden": 0.6}, MAP, Evidence(ordered=False))
    model = ModelSpec(name="mlp", input_shape=(2,), num_classes=2)
    requested = {
        "model": model,
        "spec": cut.spec,
        "returned": cut.returned,
        "training": TrainingPlan(),
        "blobs": {},
    }
    task = TrainTask(**common, tier=1, ratio=0.6, **requested)
    metrics = TrainingMetrics(examples=10, epochs=1, steps=1)
    blob = BlobRef(digest="0" * 64, size=1)
    answer = Update(**common, device="weak", blob=blob, spec=SMALL, metrics=metrics)
    examine(answer, sent("weak", 1, SMALL, layers, 10).groups, task, MAP)


def test_the_server_accepts_exactly_the_requested_layers():
    examined(("out",))
    for layers in (("hidden", "out"), ("hidden",), ()):
        with pytest.raises(PeerError, match="group 'model' is off in"):
            examined(layers)
