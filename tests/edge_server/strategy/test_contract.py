"""The contract of every component of every concept; new registry entries are tested automatically.

A component that requires options fails here until it is listed in `OPTIONS`.
"""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.aggregation.updates import TransformContext, to_global
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_component, make_strategy
from edge_server.strategy.optimizer.optimizers import SERVER_OPTIMIZERS
from edge_server.strategy.planning import plan
from edge_server.strategy.pruning.pruners import PRUNERS, Evidence
from edge_server.strategy.selection.policies import RATIOS as RATIO_POLICIES
from edge_server.strategy.selection.policies import SCHEDULES, SELECTIONS
from edge_server.strategy.weighting.interface import Need
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import CHANNELS, CLIENTS, MAP, NETWORK, RATIOS, arrays, state, update

CONCEPTS = {
    "fraction": SCHEDULES,
    "local_epochs": SCHEDULES,
    "selection": SELECTIONS,
    "ratio": RATIO_POLICIES,
    "pruner": PRUNERS,
    "transforms": TRANSFORMS,
    "weighting": WEIGHTINGS,
    "combiner": COMBINERS,
    "server_optimizer": SERVER_OPTIMIZERS,
}
OPTIONS: dict[str, dict[str, object]] = {}  # options of the components that cannot be created from defaults
LOSSY_TRANSFORMS: frozenset[str] = frozenset()
"""Transforms whose purpose is to change an update (noise, clipping)."""
SCALES_MODELS: frozenset[str] = frozenset({"scale-to-mean-norm"})
"""Transforms that change a client's model by its width, even where it has trained nothing."""
STEPS_UNLIKE_THE_CHANGE: frozenset[str] = frozenset({"adam"})
"""Server optimizers whose first step is not the combined change itself (Adam)."""
PRUNES_BEYOND_THE_TIER: frozenset[str] = frozenset({"bandit"})
"""Ratio policies that may prune more than a tier's ratio."""
ALL = [(concept, name) for concept, registry in CONCEPTS.items() for name in registry]
AGGREGATION = [pair for pair in ALL if pair[0] in ("transforms", "weighting", "combiner", "server_optimizer")]
SPECS = [SubModelSpec(), SubModelSpec(kept={"hidden": 4}), SubModelSpec(kept={"hidden": 2})]


def component(name: str) -> Component:
    return Component(name=name, options=OPTIONS.get(name, {}))


def strategy_with(concept: str, name: str):
    """The default strategy with this component."""
    chosen = component(name)
    spec = StrategySpec(**{concept: (chosen,) if concept == "transforms" else chosen})
    return make_strategy(spec, RATIOS)


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def close_to(first, second) -> bool:
    return first.keys() == second.keys() and all(np.allclose(first[n], second[n], atol=1e-5) for n in first)


def updates(count: int = 3):
    return [
        update(f"c{k}", arrays(k + 1), spec=SPECS[k % len(SPECS)], examples=10 * (k + 1))
        for k in range(count)
    ]


@pytest.mark.parametrize(("concept", "name"), ALL)
def test_every_component_can_be_created_and_used_in_a_round(concept, name):
    strategy = strategy_with(concept, name)
    before = state()
    assignments = plan(strategy, before, CLIENTS, NETWORK, random()).assignments
    assert assignments
    sent = [update(c, arrays(1), spec=assignment.cut.spec) for c, assignment in assignments.items()]
    after = close_round(strategy, before, sent, MAP)
    assert after.round == 1
    assert all(np.isfinite(array).all() for array in after.params.values())
    assert {n: (a.shape, a.dtype) for n, a in after.params.items()} == {
        n: (a.shape, a.dtype) for n, a in before.params.items()
    }
    assert set(after.observed["weights"]) == set(assignments)


@pytest.mark.parametrize(("concept", "name"), ALL)
def test_a_round_does_not_modify_its_arguments(concept, name):
    strategy, before = strategy_with(concept, name), state()
    copies = {n: a.copy() for n, a in before.params.items()}
    sent = updates()
    kept = [{n: a.copy() for n, a in client_update.groups["model"].items()} for client_update in sent]
    close_round(strategy, before, sent, MAP)
    assert close_to(copies, before.params)
    assert all(
        close_to(copy, client_update.groups["model"]) for copy, client_update in zip(kept, sent, strict=True)
    )


@pytest.mark.parametrize(("concept", "name"), AGGREGATION)
def test_the_order_of_clients_is_irrelevant(concept, name):
    strategy = strategy_with(concept, name)
    results = [close_round(strategy, state(), order, MAP) for order in itertools.permutations(updates())]
    for other in results[1:]:
        assert all((other.params[n] == results[0].params[n]).all() for n in other.params)
        assert other.observed["weights"] == results[0].observed["weights"]


@pytest.mark.parametrize(("concept", "name"), AGGREGATION)
def test_equal_updates_give_that_update(concept, name):
    if name in LOSSY_TRANSFORMS or name in STEPS_UNLIKE_THE_CHANGE:
        pytest.skip("this component gives a different result on purpose")
    delta, before = arrays(7), state()
    sent = [update(f"c{k}", delta, examples=k + 1) for k in range(5)]
    after = close_round(strategy_with(concept, name), before, sent, MAP)
    assert close_to(after.params, {n: before.params[n] + delta[n] for n in delta})


@pytest.mark.parametrize(("concept", "name"), AGGREGATION)
def test_no_change_gives_no_change(concept, name):
    if name in LOSSY_TRANSFORMS | SCALES_MODELS:
        pytest.skip("this component gives a different result on purpose")
    zeros = {n: np.zeros_like(a) for n, a in arrays(0).items()}
    before = state()
    sent = [update(f"c{k}", zeros, spec=SPECS[k]) for k in range(3)]
    assert close_to(close_round(strategy_with(concept, name), before, sent, MAP).params, dict(before.params))


@pytest.mark.parametrize(("concept", "name"), AGGREGATION)
def test_coordinates_that_nobody_holds_do_not_change(concept, name):
    if name in LOSSY_TRANSFORMS:
        pytest.skip("this component gives a different result on purpose")
    before, small = state(), SubModelSpec(kept={"hidden": 2})
    after = close_round(strategy_with(concept, name), before, [update("a", arrays(1), spec=small)], MAP)
    assert (after.params["hidden.weight"][2:] == before.params["hidden.weight"][2:]).all()
    assert (after.params["out.weight"][:, 2:] == before.params["out.weight"][:, 2:]).all()


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_schedule_gives_a_finite_number_for_every_round(name):
    schedule = make_component("schedule", SCHEDULES, component(name))
    values = [schedule(number) for number in range(1, 200)]
    assert np.isfinite(values).all()
    assert min(values) > 0
    assert values == [schedule(number) for number in range(1, 200)]


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 1.0])
@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_chooses_known_devices_once_and_repeatably(name, share):
    fraction = Component(name="constant", options={"value": share})
    strategy = make_strategy(StrategySpec(selection=component(name), fraction=fraction), RATIOS)
    chosen = list(plan(strategy, state(), CLIENTS, NETWORK, random()).assignments)
    # max(1, ceil(share * 6)): 1, 2, 3 and 6 devices; 2 of the 6 are of the strongest tier.
    most = 2 if name == "largest-tier" else 6
    assert len(chosen) == min(most, {0.01: 1, 0.3: 2, 0.5: 3, 1.0: 6}[share])
    assert set(chosen) <= {client.name for client in CLIENTS}
    for order in (CLIENTS, CLIENTS[::-1]):
        assert set(plan(strategy, state(), order, NETWORK, random()).assignments) == set(chosen)


@pytest.mark.parametrize("name", SELECTIONS)
def test_a_selection_works_with_a_single_device(name):
    strategy = make_strategy(StrategySpec(selection=component(name)), RATIOS)
    assert list(plan(strategy, state(), CLIENTS[:1], NETWORK, random()).assignments) == ["c0"]


@pytest.mark.parametrize("name", RATIO_POLICIES)
def test_a_ratio_policy_gives_every_device_a_ratio_below_one(name):
    policy = make_component("ratio policy", RATIO_POLICIES, component(name), ratios=RATIOS)
    ratios = policy.act(None, CLIENTS, 1, random())
    assert ratios.keys() == {client.name for client in CLIENTS}
    assert all(0 <= ratio < 1 for ratio in ratios.values())


@pytest.mark.parametrize("name", RATIO_POLICIES)
def test_without_pruning_every_device_gets_the_full_model(name):
    if name in PRUNES_BEYOND_THE_TIER:
        pytest.skip("this component prunes more than the tier's ratio on purpose")
    strategy = make_strategy(StrategySpec(ratio=component(name)), (0.0,))
    assignments = plan(strategy, state(), CLIENTS, NETWORK, random()).assignments
    assert all(assignment.cut.spec == SubModelSpec() for assignment in assignments.values())


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", PRUNERS)
def test_ratio_zero_is_the_full_model(name, ordered):
    pruner = make_component("pruner", PRUNERS, component(name))
    assert pruner.cut({"hidden": 0.0}, MAP, Evidence(ordered=ordered)).spec == SubModelSpec()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", PRUNERS)
def test_sub_models_of_growing_ratios_are_nested(name, ordered):
    pruner = make_component("pruner", PRUNERS, component(name))
    ratios = [0.0, 0.1, 0.3, 0.5, 0.7, 0.99]
    kept = [
        set(pruner.cut({"hidden": ratio}, MAP, Evidence(ordered=ordered)).spec.indices("hidden", CHANNELS))
        for ratio in ratios
    ]
    assert all(more >= fewer for more, fewer in itertools.pairwise(kept))
    assert all(kept)


@pytest.mark.parametrize("name", WEIGHTINGS)
@pytest.mark.parametrize("examples", [(10, 20, 30), (0, 0, 5), (0, 0, 0), (1,)])
def test_weights_are_one_per_client_not_negative_and_sum_to_one(name, examples):
    weighting = make_component("weighting", WEIGHTINGS, component(name))
    sent = [to_global(update(f"c{k}", arrays(k), examples=n), MAP) for k, n in enumerate(examples)]
    weights = weighting.weigh(None, sent)
    assert weights.shape == (len(examples),)
    assert (weights >= 0).all()
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", WEIGHTINGS)
def test_a_weighting_looks_at_nothing_that_it_does_not_declare(name):
    weighting, traits = make_component("weighting", WEIGHTINGS, component(name)), WEIGHTINGS.traits(name)
    accuracies, losses = {"accuracy": (0.5, 0.9)}, {"received_loss": (1.0, 0.1)}

    def weights(examples=(10, 20), metrics=None, seeds=(1, 2)):
        figures = [{key: values[k] for key, values in (metrics or {}).items()} for k in range(2)]
        sent = [
            replace(update(f"c{k}", arrays(seed), examples=count), metrics=figure)
            for k, (seed, count, figure) in enumerate(zip(seeds, examples, figures, strict=True))
        ]
        assert (weighting.counts(sent) is not None) is traits.counted
        return weighting.weigh(None, [to_global(one, MAP) for one in sent])

    for need, other in (
        (Need.EXAMPLES, weights(examples=(10, 7000))),
        (Need.ACCURACY, weights(metrics=accuracies)),
        (Need.LOSS, weights(metrics={**accuracies, **losses})),
        (Need.UPDATES, weights(seeds=(5, 6))),
    ):
        usual = weights(metrics=accuracies if need is Need.LOSS else None)
        assert need in traits.needs or (other == usual).all()


@pytest.mark.parametrize("name", COMBINERS)
def test_a_combined_change_is_between_those_of_the_clients(name):
    combiner = make_component("combiner", COMBINERS, component(name))
    sent = [to_global(update(f"c{k}", arrays(k)), MAP) for k in range(5)]
    change = combiner(sent, np.full(5, 0.2))
    for n, array in change.items():
        stack = np.stack([global_update.delta[n] for global_update in sent])
        assert (array >= stack.min(0) - 1e-6).all()
        assert (array <= stack.max(0) + 1e-6).all()


@pytest.mark.parametrize("name", TRANSFORMS)
def test_a_transform_keeps_names_and_shapes(name):
    transform = make_component("transform", TRANSFORMS, component(name))
    sent = to_global(update("a", arrays(1), spec=SPECS[2]), MAP)
    changed = transform(sent, TransformContext(arrays(0), MAP))
    assert {n: a.shape for n, a in changed.delta.items()} == {n: a.shape for n, a in sent.delta.items()}
    assert {n: a.shape for n, a in changed.coverage.items()} == {n: a.shape for n, a in sent.coverage.items()}


@pytest.mark.parametrize("name", SERVER_OPTIMIZERS)
def test_a_server_optimizer_steps_against_the_gradient(name):
    optimizer = make_component("server optimizer", SERVER_OPTIMIZERS, component(name))
    params, gradient = arrays(0), {n: np.ones_like(a) for n, a in arrays(0).items()}
    after, _ = optimizer.step({}, params, gradient)
    assert all((after[n] < params[n]).all() for n in params)
