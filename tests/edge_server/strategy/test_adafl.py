"""AdaFL, section 2.2 and Algorithm 1: which clients are drawn, and how scores follow distances."""

import json
from collections import Counter

import numpy as np
import pytest

from edge_server.config.load import load_config
from edge_server.strategy.aggregation.updates import to_global
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.selection.policies import Attention, Client, RoundResult, attention_scores, distance
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update
from tests.integration.bench import Bench

CLIENTS = [Client("a", 1, 10), Client("b", 1, 20), Client("c", 1, 30), Client("d", 1, 40)]
ADAFL = make_strategy(StrategySpec(selection=Component(name="attention")), RATIOS)
ZERO = {name: np.zeros_like(array) for name, array in arrays(0).items()}


def constants(value: float) -> dict[str, np.ndarray]:
    return {name: np.full_like(array, value) for name, array in ZERO.items()}


def result(moved: dict[str, float], after: float, *, kept: int = 5, clients=CLIENTS) -> RoundResult:
    """All clients start at 0; client k moves each coordinate by `moved[k]`, the global model by `after`."""
    spec = SubModelSpec(kept={"hidden": kept})
    sent = [to_global(update(name, constants(by), spec=spec), MAP) for name, by in moved.items()]
    return RoundResult(1, sent, {}, before=ZERO, after=constants(after), clients=clients)


# --- scores (equation 2) ---
def test_scores_begin_as_shares_of_the_examples():
    assert attention_scores({}, {"a": 10, "b": 20, "c": 30, "d": 40}) == pytest.approx(
        {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    )


def test_selected_clients_redistribute_their_scores_by_distance_and_others_keep_theirs():
    # The new model is at 2; b ended at 1 and d at 5 in all of the 27 coordinates, so d_b : d_d = 1 : 3.
    # b and d hold 0.2 + 0.4 = 0.6 together. With alpha = 0.9:
    #   b: 0.9 * 0.2 + 0.1 * 1/4 * 0.6 = 0.195
    #   d: 0.9 * 0.4 + 0.1 * 3/4 * 0.6 = 0.405
    scores = Attention().observe(None, result({"b": 1.0, "d": 5.0}, after=2.0))
    assert scores == pytest.approx({"a": 0.1, "b": 0.195, "c": 0.3, "d": 0.405})


def test_without_memory_only_distances_count():
    # alpha = 0: b gets 1/4 and d 3/4 of 0.6.
    scores = Attention(alpha=0.0).observe(None, result({"b": 1.0, "d": 5.0}, after=2.0))
    assert scores == pytest.approx({"a": 0.1, "b": 0.15, "c": 0.3, "d": 0.45})


def test_scores_stay_a_probability_vector_round_after_round():
    policy, scores, random = Attention(), None, np.random.default_rng(0)
    for _ in range(200):
        chosen = policy.act(scores, CLIENTS, 2, random)
        before = attention_scores(scores or {}, {c.name: c.examples for c in CLIENTS})
        moved = {name: float(random.normal()) for name in chosen}
        scores = policy.observe(scores, result(moved, after=float(random.normal())))
        assert sum(scores.values()) == pytest.approx(1, abs=1e-12)
        assert min(scores.values()) > 0
        assert all(scores[c.name] == before[c.name] for c in CLIENTS if c.name not in chosen)


def test_scores_stay_when_all_distances_are_zero():
    scores = Attention().observe(None, result({"b": 2.0, "d": 2.0}, after=2.0))
    assert scores == pytest.approx({"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4})


def test_a_client_that_joins_later_gets_its_share_of_the_examples():
    # a and b score 0.5 with 10 examples each: 0.05 per example. The 5 examples of c count 0.25, and all
    # are divided by 1.25; that is n_k / n = 5 / 25 for c.
    known = {"a": 0.5, "b": 0.5}
    scores = attention_scores(known, {"a": 10, "b": 10, "c": 5})
    assert scores == pytest.approx({"a": 0.4, "b": 0.4, "c": 0.2})


def test_a_client_that_left_keeps_its_score():
    # Of the known clients b is present: 0.6 / 30 = 0.02 per example, 0.2 for the 10 of c, divided by 1.2.
    scores = attention_scores({"a": 0.4, "b": 0.6}, {"b": 30, "c": 10})
    assert scores == pytest.approx({"a": 0.4 / 1.2, "b": 0.5, "c": 0.2 / 1.2})
    # Only newcomers are present: 1 together, plus the 1 of the clients that left.
    scores = attention_scores({"a": 0.4, "b": 0.6}, {"c": 10, "d": 30})
    assert scores == pytest.approx({"a": 0.2, "b": 0.3, "c": 0.125, "d": 0.375})


def test_a_client_without_examples_counts_as_having_one_example():
    assert attention_scores({}, {"a": 0, "b": 3}) == pytest.approx({"a": 0.25, "b": 0.75})


# --- distance (equation 1) ---
def test_the_distance_is_euclidean_over_all_parameters():
    # 10 + 5 + 10 + 2 = 27 coordinates, each 2 - 5 = -3 away: sqrt(27 * 9).
    round_result = result({"a": 5.0}, after=2.0)
    assert distance(round_result.updates[0], round_result) == pytest.approx(np.sqrt(27 * 9))


@pytest.mark.parametrize("kept", [1, 2, 4, 5])
def test_the_distance_does_not_depend_on_the_size_of_the_sub_model(kept):
    # With 2 of 5 channels: 4 + 2 + 4 + 2 = 12 of 27 are held; sqrt(12 * 9) / sqrt(12 / 27) = sqrt(27 * 9).
    round_result = result({"a": 5.0}, after=2.0, kept=kept)
    assert distance(round_result.updates[0], round_result) == pytest.approx(np.sqrt(27 * 9))


def test_only_coordinates_that_a_client_holds_count_even_with_recovery():
    components = (Component(name="attention-matching"), Component(name="fill-with-global"))
    spec = StrategySpec(
        selection=Component(name="attention", options={"alpha": 0.0}),
        transforms=components,
        server_optimizer=Component(name="sgd", options={"learning_rate": 1.0}),
    )
    small = SubModelSpec(kept={"hidden": 2})
    sent = [update("a", constants(1), spec=small), update("b", constants(3))]
    after = close_round(make_strategy(spec, RATIOS), State(params=ZERO), sent, MAP)
    # Each has weight 1/2. What a holds becomes (1 + 3) / 2 = 2, the 15 coordinates that it lacks 3 / 2 = 1.5.
    #   a: 12 held, each 1 away: sqrt(12) / sqrt(12 / 27) = sqrt(27)
    #   b: 12 are 1 away, 15 are 1.5 away: sqrt(12 + 15 * 2.25) = sqrt(45.75)
    a, b = np.sqrt(27), np.sqrt(45.75)
    assert after.observed["attention"] == pytest.approx({"a": a / (a + b), "b": b / (a + b)})


# --- the draw ---
def test_clients_are_drawn_in_proportion_to_their_scores():
    policy, random = Attention(), np.random.default_rng(1)
    scores = {"a": 0.1, "b": 0.2, "c": 0.3, "d": 0.4}
    drawn = Counter(policy.act(scores, CLIENTS, 1, random)[0] for _ in range(4000))
    assert {name: drawn[name] / 4000 for name in scores} == pytest.approx(scores, abs=0.025)


def test_clients_are_drawn_one_after_the_other_without_replacement():
    # Two of a: 0.5, b: 0.3, c: 0.2. Both orders of a and b: 0.5 * 0.3/0.5 + 0.3 * 0.5/0.7 = 0.5143;
    # a and c: 0.5 * 0.2/0.5 + 0.2 * 0.5/0.8 = 0.325; b and c: 0.3 * 0.2/0.7 + 0.2 * 0.3/0.8 = 0.1607.
    policy, random = Attention(), np.random.default_rng(2)
    scores = {"a": 0.5, "b": 0.3, "c": 0.2}
    drawn = Counter(policy.act(scores, CLIENTS[:3], 2, random) for _ in range(4000))
    shares = {"".join(names): count / 4000 for names, count in drawn.items()}
    assert shares == pytest.approx({"ab": 0.5143, "ac": 0.325, "bc": 0.1607}, abs=0.025)


def test_only_present_clients_are_drawn():
    scores = {"a": 0.01, "b": 0.01, "gone": 0.98}
    chosen = Attention().act(scores, CLIENTS[:2], 2, np.random.default_rng(0))
    assert chosen == ("a", "b")


def test_a_client_with_score_zero_is_drawn_after_all_others():
    scores = {"a": 0.0, "b": 0.5, "c": 0.5, "d": 0.0}
    for seed in range(20):
        chosen = Attention().act(scores, CLIENTS, 3, np.random.default_rng(seed))
        assert len(chosen) == 3
        assert {"b", "c"} <= set(chosen)


@pytest.mark.parametrize("alpha", [-0.1, 1.0])
def test_a_decay_outside_its_range_is_refused(alpha):
    with pytest.raises(ConfigError, match=r"selection 'attention': alpha must be in \[0, 1\)"):
        make_strategy(StrategySpec(selection=Component(name="attention", options={"alpha": alpha})), RATIOS)


# --- in a run ---
def test_the_scores_of_all_clients_are_reported_after_each_round():
    sent = [update("b", constants(1), examples=20), update("d", constants(5), examples=40)]
    after = close_round(ADAFL, state(), sent, MAP, clients=CLIENTS)
    # The mean is (20 * 1 + 40 * 5) / 60 = 11/3; b is 8/3 away and d 4/3, so 2 : 1 of 0.6.
    #   b: 0.18 + 0.1 * 0.4 = 0.22;  d: 0.36 + 0.1 * 0.2 = 0.38
    expected = {"a": 0.1, "b": 0.22, "c": 0.3, "d": 0.38}
    assert after.observed["attention"] == pytest.approx(expected, rel=1e-5)
    assert after.selection == after.observed["attention"]
    assert after.observed["weights"] == pytest.approx({"b": 1 / 3, "d": 2 / 3})


def test_the_scores_of_all_clients_reach_the_history(tmp_path):
    bench = Bench(tmp_path, "adafl", "model.name=mlp")
    # Both have 24 examples. Round 1 of 2 selects ceil(0.1 * 2) = 1 device, which keeps its entire score.
    record, updates = bench.round(1)
    assert (record.fraction, len(updates)) == (0.1, 1)
    assert record.attention == pytest.approx({"strong": 0.5, "weak": 0.5})
    assert json.loads((tmp_path / "run" / "history.jsonl").read_text())["attention"] == record.attention


def test_the_order_of_updates_and_clients_is_irrelevant():
    sent = [update("b", arrays(1)), update("d", arrays(2)), update("a", arrays(3))]
    one = close_round(ADAFL, state(), sent, MAP, clients=CLIENTS)
    other = close_round(ADAFL, state(), sent[::-1], MAP, clients=CLIENTS[::-1])
    assert one.selection == other.selection


# --- recipes ---
@pytest.mark.parametrize(
    ("recipe", "selection", "last"),
    [
        ("adafl", "attention", 0.5),
        ("adafl-attention", "attention", 1.0),
        ("adafl-fraction", "uniform", 0.5),
        ("attending-adafl", "attention", 0.5),
    ],
)
def test_the_recipes_use_the_components_in_their_names(recipe, selection, last):
    config = load_config(recipe, ["rounds=50"])
    assert config.strategy.selection.name == selection
    assert config.make_strategy().fraction(50) == last


def test_attending_adafl_differs_from_attending_only_in_the_choice_of_clients():
    plain, combined = load_config("attending"), load_config("attending-adafl")
    adafl = {"fraction": combined.strategy.fraction, "selection": combined.strategy.selection}
    assert plain.strategy.model_copy(update=adafl) == combined.strategy
    assert plain.tiers == combined.tiers


@pytest.mark.parametrize(("without", "recipe"), [("fedavg", "fedprox"), ("adafl", "adafl-fedprox")])
def test_the_fedprox_recipes_only_add_the_prox_objective(without, recipe):
    plain, proximal = load_config(without), load_config(recipe)
    prox = (Component(name="prox", options={"mu": 0.01}),)
    assert plain.strategy.model_copy(update={"objectives": prox}) == proximal.strategy
    assert proximal.tiers.ratios == (0.0,)
