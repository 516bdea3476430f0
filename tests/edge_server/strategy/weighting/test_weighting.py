"""How much each client's update counts; numbers calculated by hand."""

import math

import numpy as np
import pytest

from edge_server.strategy.aggregation.updates import to_global
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_component, make_strategy
from edge_server.strategy.selection.policies import RoundResult
from edge_server.strategy.weighting import igfl
from edge_server.strategy.weighting.igfl import dot_products
from edge_server.strategy.weighting.interface import similarity
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update
from tests.groups import decode_groups, encode_groups

IGFL = ["igfl-self", "igfl-global", "igfl-time"]
LN2 = math.log(2)


def bias(first: float, second: float) -> dict[str, np.ndarray]:
    """An update that changes only out.bias [2]."""
    zeros = {name: np.zeros_like(array) for name, array in arrays(0).items()}
    return {**zeros, "out.bias": np.array([first, second], dtype=np.float32)}


def sent(*pairs: tuple[float, float], names: str = "abcdef"):
    return [
        to_global(update(name, bias(*pair)), MAP)
        for name, pair in zip(names[: len(pairs)], pairs, strict=True)
    ]


def result(updates, number: int = 1) -> RoundResult:
    weights = {global_update.source.client: 1 / len(updates) for global_update in updates}
    return RoundResult(number, updates, weights, before=arrays(0), after=arrays(0))


# --- psi and softmax ---
def test_psi_is_the_dot_product_of_whole_updates():
    updates = [to_global(update(f"c{k}", arrays(k)), MAP) for k in range(3)]
    whole = [
        np.concatenate([global_update.delta[n].ravel() for n in global_update.delta])
        for global_update in updates
    ]
    for i in range(3):
        for j in range(3):
            assert dot_products(updates)[i, j] == pytest.approx(float(whole[i] @ whole[j]), rel=1e-5)
            assert igfl.dot_product(updates[i].delta, updates[j].delta) == pytest.approx(
                float(whole[i] @ whole[j]), rel=1e-5
            )


def test_coordinates_that_either_update_lacks_add_nothing_to_psi():
    # All ones: a prefix of 2 channels has 4 + 2 + 4 + 2 = 12 of the 27 coordinates; (0, 1) and (1, 2)
    # share channel 1: 2 + 1 + 2 + 2 = 7.
    ones = {name: np.ones_like(array) for name, array in arrays(0).items()}
    specs = [SubModelSpec(), SubModelSpec(kept={"hidden": 2}), SubModelSpec(kept={"hidden": (1, 2)})]
    updates = [to_global(update(f"c{k}", ones, spec=spec), MAP) for k, spec in enumerate(specs)]
    assert dot_products(updates).tolist() == [[27, 12, 12], [12, 12, 7], [12, 7, 12]]


def test_the_softmax_does_not_overflow():
    assert igfl.softmax(np.array([1e9, 1e9])).tolist() == [0.5, 0.5]
    assert igfl.softmax(np.array([-1e9, 0.0])).tolist() == [0, 1]
    assert igfl.softmax(np.array([[LN2, 0.0], [0.0, 0.0]])) == pytest.approx(
        np.array([[2 / 3, 1 / 3], [0.5, 0.5]])
    )


# --- the three options of Algorithm 3 ---
def test_self_attention_is_the_mean_over_the_queries():
    # s = sqrt(ln 2). dw = (s, 0), (s, 0), (0, s): psi(i, j) is ln 2 for equal updates, else 0; exp 2 or 1.
    # Queries a and b: (2, 2, 1) / 5. Query c: (1, 1, 2) / 4.
    # a and b: (0.4 + 0.4 + 0.25) / 3 = 0.35; c: (0.2 + 0.2 + 0.5) / 3 = 0.3.
    s = LN2**0.5
    weights = igfl.IgflSelf().weigh(None, sent((s, 0), (s, 0), (0, s)))
    assert weights == pytest.approx(np.array([0.35, 0.35, 0.3]))


def test_global_attention_uses_the_plain_mean_as_query():
    # s^2 = 3 ln 2. Mean of (s, 0), (s, 0), (0, s) is (2 s / 3, s / 3): psi is 2 ln 2, 2 ln 2, ln 2.
    # exp: 4, 4, 2; weights 0.4, 0.4, 0.2.
    s = (3 * LN2) ** 0.5
    weights = igfl.IgflGlobal().weigh(None, sent((s, 0), (s, 0), (0, s)))
    assert weights == pytest.approx(np.array([0.4, 0.4, 0.2]))


def test_the_products_computed_for_the_weights_give_the_similarity_of_updates():
    # (3, 0), (4, 4), (0, -2), (0, 0): the first two are 45 degrees apart, the next 135 and 90; the last is
    # similar to none, not even to itself.
    pairs, names = ((3, 0), (4, 4), (0, -2), (0, 0)), "abcd"
    strategy = make_strategy(StrategySpec(weighting=Component(name="igfl-self")), RATIOS)
    after = close_round(
        strategy, state(), [update(n, bias(*p)) for n, p in zip(names, pairs, strict=True)], MAP
    )
    half = 0.7071
    assert after.observed["similarity"] == {
        "clients": ["a", "b", "c", "d"],
        "values": [[1, half, 0, 0], [half, 1, -half, 0], [0, -half, 1, 0], [0, 0, 0, 0]],
    }


def test_dot_products_are_computed_once_for_weights_and_similarity(monkeypatch):
    calls = []
    monkeypatch.setattr(igfl, "dot_products", lambda updates: calls.append(1) or np.eye(2))
    for name in ("igfl-self", "igfl-global"):
        strategy = make_strategy(StrategySpec(weighting=Component(name=name)), RATIOS)
        close_round(strategy, state(), [update("a", bias(1, 0)), update("b", bias(0, 1))], MAP)
    assert len(calls) == 2


def test_the_similarity_table_contains_at_most_64_clients():
    reported = similarity(np.eye(70), [f"d{number:02}" for number in range(70)])
    assert (len(reported["clients"]), reported["clients"][-1], len(reported["values"])) == (64, "d63", 64)
    assert {len(row) for row in reported["values"]} == {64}


def test_a_weighting_that_compares_no_updates_reports_no_similarity():
    after = close_round(make_strategy(StrategySpec(), RATIOS), state(), [update("a", bias(1, 0))], MAP)
    assert "similarity" not in after.observed


def test_time_attention_compares_each_update_with_the_clients_previous_one():
    # All sent (1, 0) last round. Now (ln 4, 5), (0, 7), (-ln 2, 0): psi is ln 4, 0, -ln 2; exp 4, 1, 1/2.
    # Weights 4 / 5.5, 1 / 5.5, 0.5 / 5.5.
    rule = igfl.IgflTime()
    memory = rule.observe(None, result(sent((1, 0), (1, 0), (1, 0))))
    weights = rule.weigh(memory, sent((2 * LN2, 5), (0, 7), (-LN2, 0)))
    assert weights == pytest.approx(np.array([8, 2, 1]) / 11)


def test_psi_of_a_client_without_an_earlier_update_is_zero():
    # psi of a is ln 16, of b and of the newcomers 0: exp 16, 1, 1, 1, of 19.
    rule = igfl.IgflTime()
    memory = rule.observe(None, result(sent((1, 0), (1, 0))))
    weights = rule.weigh(memory, sent((4 * LN2, 0), (0, 1), (9, 9), (-9, 0)))
    assert weights == pytest.approx(np.array([16, 1, 1, 1]) / 19)


def test_time_attention_starts_with_equal_weights():
    weights = igfl.IgflTime().weigh(None, sent((1, 0), (9, 9), (-3, 0), (0, 2)))
    assert weights.tolist() == [0.25] * 4


def test_a_client_that_sat_out_keeps_its_last_update():
    rule = igfl.IgflTime()
    memory = rule.observe(None, result(sent((1, 0), (2, 0), names="ab")))
    later = rule.observe(memory, result(sent((5, 0), (6, 0), names="bc"), number=2))
    assert {name: float(kept["out.bias"][0]) for name, kept in later.items()} == {"a": 1, "b": 5, "c": 6}
    assert {name: float(kept["out.bias"][0]) for name, kept in memory.items()} == {"a": 1, "b": 2}


def test_the_memory_of_time_attention_survives_the_codec():
    rule = igfl.IgflTime()
    memory = rule.observe(None, result(sent((1, 0), (2, 0), (0, 3))))
    updates = sent((1, 1), (0, 2), (1, 0))
    again = decode_groups(encode_groups(memory))
    assert (rule.weigh(again, updates) == rule.weigh(memory, updates)).all()


# --- common to all rules ---
def test_the_scale_multiplies_psi():
    # As for self-attention above, with updates 100 times as long and a scale of 1 / 10,000.
    s = 100 * LN2**0.5
    weights = igfl.IgflSelf(scale=1e-4).weigh(None, sent((s, 0), (s, 0), (0, s)))
    assert weights == pytest.approx(np.array([0.35, 0.35, 0.3]))


@pytest.mark.parametrize("name", IGFL)
def test_a_scale_of_zero_gives_equal_weights(name):
    rule = make_component("weighting", WEIGHTINGS, Component(name=name, options={"scale": 0.0}))
    memory = rule.observe(None, result(sent((1, 0), (2, 0))))
    assert rule.weigh(memory, sent((3, 1), (-2, 5))).tolist() == [0.5, 0.5]


@pytest.mark.parametrize("name", IGFL)
def test_updates_far_too_large_for_exp_still_give_weights(name):
    rule = make_component("weighting", WEIGHTINGS, Component(name=name))
    updates = sent((1e10, 0), (1e10, 1), (-1e10, 0))
    weights = rule.weigh(rule.observe(None, result(updates)), updates)
    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1)


@pytest.mark.parametrize("name", IGFL)
def test_equal_updates_give_fedavg_with_equal_weights(name):
    strategy = make_strategy(StrategySpec(weighting=Component(name=name)), RATIOS)
    now = state()
    for seed in (1, 2):  # time-attention has its memory in the second round
        clients = [update(f"c{k}", arrays(seed), examples=10**k) for k in range(4)]
        before, now = now, close_round(strategy, now, clients, MAP)
        assert list(now.observed["weights"].values()) == pytest.approx([0.25] * 4)
        for n, delta in arrays(seed).items():
            assert np.allclose(now.params[n], before.params[n] + delta, atol=1e-5)


def test_the_memory_of_time_attention_is_carried_over_between_rounds():
    strategy = make_strategy(StrategySpec(weighting=Component(name="igfl-time")), RATIOS)
    first = close_round(strategy, state(), [update("a", bias(1, 0)), update("b", bias(1, 0))], MAP)
    second = close_round(strategy, first, [update("a", bias(LN2, 0)), update("b", bias(0, 0))], MAP)
    # psi is ln 2 and 0: weights 2/3 and 1/3.
    assert second.observed["weights"] == pytest.approx({"a": 2 / 3, "b": 1 / 3})


@pytest.mark.parametrize("name", IGFL)
def test_a_negative_scale_is_refused(name):
    with pytest.raises(ConfigError, match="scale must be at least 0"):
        make_component("weighting", WEIGHTINGS, Component(name=name, options={"scale": -1.0}))
