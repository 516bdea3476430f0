"""Pruners: which channels they keep, by index, by magnitude or at random."""

import numpy as np
import pytest

from edge_client.pruning.index_sets import extract
from edge_server.config.load import load_config
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import plan, tier_spec
from edge_server.strategy.pruning.pruners import (
    PRUNERS,
    Evidence,
    Index,
    Magnitude,
    Random,
    Rolling,
    l1_norms,
)
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import State
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from tests.edge_server.strategy.network import MAP, NETWORK, RATIOS, arrays, state, update

# Rows of the target layer: |1| + |-1| = 2, |3| + |0| = 3, |0.5| + |0.5| = 1, |-4| + |2| = 6, |2| + |-3| = 5.
# Ranked: 3 4 1 0 2. The biases would rank differently; they are ignored.
ROWS = np.array([[1, -1], [3, 0], [0.5, 0.5], [-4, 2], [2, -3]], np.float32)
PARAMS = {**arrays(0), "hidden.weight": ROWS, "hidden.bias": np.array([9, 0, 9, 0, 0], np.float32)}
CLIENTS = [Client("a", 1), Client("b", 2), Client("c", 3), Client("d", 1)]


def strategy(pruner: str):
    return make_strategy(StrategySpec(pruner=Component(name=pruner)), RATIOS)


def planned(pruner: str, params=PARAMS, *, seed: int = 0) -> dict[str, SubModelSpec]:
    random = np.random.default_rng(seed)
    assignments = plan(strategy(pruner), State(params=params), CLIENTS, NETWORK, random).assignments
    return {name: assignment.cut.spec for name, assignment in assignments.items()}


# --- magnitude ---
def test_the_norm_of_a_channel_is_the_sum_of_its_absolute_weights():
    norms = l1_norms({"hidden": 0.5}, MAP, PARAMS)
    assert {name: values.tolist() for name, values in norms.items()} == {"hidden": [2, 3, 1, 6, 5]}


@pytest.mark.parametrize(
    ("ratio", "kept"),
    # ceil(5 p) channels are removed, smallest norm first; the others stay in the order of their indices.
    [(0.2, (0, 1, 3, 4)), (0.4, (1, 3, 4)), (0.6, (3, 4)), (0.8, (3,)), (0.99, (3,))],
)
def test_channels_with_the_largest_norms_are_kept(ratio, kept):
    for ordered in (False, True):
        cut = Magnitude().cut({"hidden": ratio}, MAP, Evidence(ordered=ordered, params=PARAMS))
        assert cut.spec.kept == {"hidden": kept}
        assert cut.personal is None


def test_equal_channels_are_removed_from_the_end():
    same = {**PARAMS, "hidden.weight": np.ones((5, 2), np.float32)}
    cut = Magnitude().cut({"hidden": 0.6}, MAP, Evidence(ordered=True, params=same))
    assert cut.spec.indices("hidden", 5) == (0, 1)


def test_every_tier_gets_the_largest_channels_of_the_current_model():
    assert {name: spec.kept for name, spec in planned("magnitude").items()} == {
        "a": {"hidden": (3, 4)},
        "b": {"hidden": (0, 1, 3, 4)},
        "c": {},
        "d": {"hidden": (3, 4)},
    }
    upside_down = {**PARAMS, "hidden.weight": ROWS[::-1].copy()}
    assert planned("magnitude", upside_down)["a"].kept == {"hidden": (0, 1)}


def test_coupled_layers_rank_by_the_mean_of_their_norms():
    segment = (Segment(channels=2, group="g"),)
    coupled = ChannelMap(
        groups={"g": ChannelGroup(channels=2, layers=("one", "two"))},
        parameters={
            "one.weight": ParameterLayout(shape=(2, 1), axes={0: segment}),
            "two.weight": ParameterLayout(shape=(2, 1), axes={0: segment}),
        },
    )
    # Channel 0: (5 + 1) / 2 = 3; channel 1: (1 + 6) / 2 = 3.5.
    params = {"one.weight": np.array([[5], [1]], np.float32), "two.weight": np.array([[-1], [6]], np.float32)}
    cut = Magnitude().cut({"g": 0.5}, coupled, Evidence(ordered=True, params=params))
    assert cut.spec.kept == {"g": (1,)}


@pytest.mark.parametrize("pruner", [Magnitude(), Random(), Rolling()])
def test_blocks_are_kept_or_removed_as_a_whole(pruner):
    segment = (Segment(channels=6, group="g"),)
    blocks = ChannelMap(
        groups={"g": ChannelGroup(channels=6, layers=("g",), multiple=2)},
        parameters={"g.weight": ParameterLayout(shape=(6, 1), axes={0: segment})},
    )
    # Means by block: (9 + 0) / 2 = 4.5, (1 + 2) / 2 = 1.5 and (5 + 6) / 2 = 5.5.
    params = {"g.weight": np.array([[9], [0], [1], [2], [5], [6]], np.float32)}
    for seed in range(5):
        kept = pruner.cut(
            {"g": 0.6}, blocks, Evidence(ordered=True, params=params, seed=seed, round=seed + 1)
        ).spec.kept["g"]
        assert kept in ((0, 1), (2, 3), (4, 5))
        extract(params, SubModelSpec(kept={"g": kept}), blocks)
    if isinstance(pruner, Magnitude):
        assert kept == (4, 5)


# --- random ---
def test_devices_of_one_tier_have_the_same_random_sub_model_and_tiers_are_nested():
    for seed in range(20):
        specs = planned("random", seed=seed)
        fewer, more = (set(specs[name].indices("hidden", 5)) for name in ("a", "b"))
        assert (len(fewer), len(more)) == (2, 4)
        assert fewer < more
        assert specs["d"] == specs["a"]
        assert specs["c"] == SubModelSpec()


def test_every_round_draws_new_channels_and_all_channels_equally_often():
    kept = [planned("random", seed=seed)["a"].indices("hidden", 5) for seed in range(500)]
    # 2 of 5 channels: each has a share of 0.4, and there are 10 pairs.
    counts = np.bincount(np.ravel(kept), minlength=5) / 500
    assert counts == pytest.approx(np.full(5, 0.4), abs=0.07)
    assert len(set(kept)) == 10
    assert planned("random", seed=3) == planned("random", seed=3)


def test_groups_are_drawn_independently():
    segments = {name: (Segment(channels=8, group=name),) for name in ("g", "h")}
    two = ChannelMap(
        groups={name: ChannelGroup(channels=8, layers=(name,)) for name in segments},
        parameters={
            f"{name}.weight": ParameterLayout(shape=(8, 1), axes={0: s}) for name, s in segments.items()
        },
    )
    kept = Random().cut({"h": 0.5, "g": 0.5}, two, Evidence(ordered=True, seed=1)).spec.kept
    assert kept["g"] != kept["h"]
    # The order in which groups are named is irrelevant.
    assert Random().cut({"g": 0.5, "h": 0.5}, two, Evidence(ordered=True, seed=1)).spec.kept == kept


# --- a rolling window ---
def test_the_window_moves_on_by_one_channel_per_round_and_tiers_include_each_other():
    def kept(number: int, ratio: float) -> tuple[int, ...]:
        return Rolling().cut({"hidden": ratio}, MAP, Evidence(round=number)).spec.indices("hidden", 5)

    assert [kept(number, 0.6) for number in (1, 2, 5, 6)] == [(0, 1), (1, 2), (0, 4), (0, 1)]
    for number in range(1, 11):
        assert set(kept(number, 0.6)) < set(kept(number, 0.2))
    counts = np.bincount(np.ravel([kept(number, 0.6) for number in range(1, 6)]))
    assert counts.tolist() == [2, 2, 2, 2, 2]


# --- the client's own magnitude ---
def ranked_by(client: str, kept: tuple[int, ...]):
    scores = {"hidden": np.zeros(5, np.float32)}
    return update(client, arrays(1), spec=SubModelSpec(kept={"hidden": kept}), attention=scores)


def test_each_client_ranks_the_whole_network_once_and_trains_its_own_channels_from_then_on():
    own = strategy("own-magnitude")
    first = plan(own, State(params=PARAMS), CLIENTS, NETWORK, np.random.default_rng(0)).assignments
    assert all(assignment.cut.spec == SubModelSpec() for assignment in first.values())
    assert all(assignment.cut.personal and assignment.cut.train for assignment in first.values())
    assert [objective.name for objective in first["a"].cut.objectives] == ["magnitude-scores"]
    after = close_round(own, State(params=PARAMS), [ranked_by("a", (4, 1)), ranked_by("d", (0, 2))], MAP)
    later = plan(own, after, CLIENTS, NETWORK, np.random.default_rng(0)).assignments
    # a and d, of one tier, keep their own channels; b was not chosen in round one and ranks in this one.
    assert later["a"].cut.spec.kept == {"hidden": (1, 4)}
    assert later["d"].cut.spec.kept == {"hidden": (0, 2)}
    assert later["b"].cut.personal is not None
    assert later["a"].cut.objectives == ()
    again = close_round(own, after, [ranked_by("a", (2, 3))], MAP)
    assert again.pruning["a/hidden"].tolist() == [1, 4]


# --- sub-model of a tier ---
@pytest.mark.parametrize("name", PRUNERS)
def test_a_tier_without_pruning_is_the_full_model(name):
    assert tier_spec(strategy(name), State(params=PARAMS), NETWORK, 0.0) == SubModelSpec()


@pytest.mark.parametrize("name", PRUNERS)
def test_a_tier_gets_the_leading_channels_unless_they_are_ranked_by_norm(name):
    expected = (3, 4) if "magnitude" in name else 2
    assert tier_spec(strategy(name), State(params=PARAMS), NETWORK, 0.6).kept == {"hidden": expected}


# --- recipes ---
def test_heterofl_averages_each_channel_over_its_holders():
    config = load_config("heterofl")
    assert isinstance(config.make_strategy().pruner, Index)
    ones = {name: np.ones_like(array) for name, array in arrays(0).items()}
    threes = {name: 3 * array for name, array in ones.items()}
    sent = [
        update("a", ones, spec=SubModelSpec(kept={"hidden": 2}), examples=10),
        update("b", threes, spec=SubModelSpec(kept={"hidden": 4}), examples=30),
    ]
    before = state()
    after = close_round(config.make_strategy(), before, sent, MAP)
    moved = after.params["hidden.bias"] - before.params["hidden.bias"]
    # Both hold channels 0 and 1: (10 * 1 + 30 * 3) / 40 = 2.5; only b holds 2 and 3; nobody holds 4.
    assert moved == pytest.approx([2.5, 2.5, 3, 3, 0], abs=1e-5)


def test_global_ranking_by_magnitude_counts_missing_channels_as_unchanged():
    config = load_config("global-l1")
    ones = {name: np.ones_like(array) for name, array in arrays(0).items()}
    sent = [
        update("a", ones, spec=SubModelSpec(kept={"hidden": (3, 4)}), examples=10),
        update("b", ones, spec=SubModelSpec(kept={"hidden": (0, 1, 3, 4)}), examples=30),
    ]
    before = State(params=PARAMS)
    after = close_round(config.make_strategy(), before, sent, MAP)
    # Only b moves channels 0 and 1, with its weight of 30 / 40; both move 3 and 4; nobody moves 2.
    moved = after.params["hidden.bias"] - PARAMS["hidden.bias"]
    assert moved == pytest.approx([0.75, 0.75, 0, 1, 1], abs=1e-5)
    assert not after.ordered


@pytest.mark.parametrize(
    ("recipe", "pruner"),
    [
        ("heterofl", "index"),
        ("feddrop", "random"),
        ("global-l1", "magnitude"),
        ("attending-l1", "own-magnitude"),
    ],
)
def test_the_recipes_name_their_pruner_and_have_the_tiers_of_attending(recipe, pruner):
    config = load_config(recipe)
    assert config.strategy.pruner == Component(name=pruner)
    assert config.tiers == load_config("attending").tiers
