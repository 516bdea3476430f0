"""ATTENDING, section 3.3 and Algorithm 2, calculated by hand: three clients, one target layer of 5 channels.

To make channels distinguishable, channel i of the global model w is (10 i, 10 i) in the target layer
(bias i) and 100 i in the consumer; the output bias is 0. Each client adds its number in `TRAINED` to all
parameters that it keeps.
"""

from dataclasses import replace

import numpy as np
import pytest

from edge_client.pruning.channel_selection import personal_spec
from edge_client.pruning.index_sets import permute
from edge_server.strategy.aggregation.transforms import attention_matching, cover_missing, match_attention
from edge_server.strategy.aggregation.updates import ClientUpdate, TransformContext, to_global
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.planning import plan
from edge_server.strategy.selection.policies import Client
from edge_server.strategy.strategy import State
from schemas.errors import ConfigError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from tests.edge_server.strategy.network import CHANNELS, MAP, NETWORK, RATIOS, arrays, update

I = np.arange(CHANNELS, dtype=np.float32)  # noqa: E741
W = {
    "hidden.weight": np.stack([10 * I, 10 * I], axis=1),
    "hidden.bias": I,
    "out.weight": np.stack([100 * I, 100 * I]),
    "out.bias": np.zeros(2, np.float32),
}
ATTENDING = make_strategy(
    StrategySpec(
        pruner=Component(name="attention", options={"first_round": "train"}),
        transforms=(Component(name="attention-matching"), Component(name="fill-with-global")),
    ),
    RATIOS,
)
# Client, pruning ratio, |D_c|, scores of channels 0..4: ranked, the most attended first,
#   a: 3 1 4 0 2   keeps 2 (ratio 0.6): 3 1
#   b: 1 3 0 4 2   keeps 4 (ratio 0.2): 1 3 0 4
#   c: 4 3 2 1 0   keeps 5 (ratio 0)
SCORES = {"a": [0.3, 0.8, 0.1, 0.9, 0.5], "b": [0.5, 0.9, 0.1, 0.7, 0.2], "c": [0.1, 0.2, 0.3, 0.4, 0.5]}
RATIO = {"a": 0.6, "b": 0.2, "c": 0.0}
EXAMPLES = {"a": 20, "b": 30, "c": 50}
TRAINED = {"a": 1.0, "b": 2.0, "c": 4.0}


def sent(client: str) -> ClientUpdate:
    """The client's update: its own best channels (Algorithm 1), each moved by the client's number."""
    scores = {"hidden": np.array(SCORES[client], np.float32)}
    spec = personal_spec(scores, {"hidden": RATIO[client]}, MAP)
    moved = {name: np.full_like(array, TRAINED[client]) for name, array in W.items()}
    return update(client, moved, spec=spec, examples=EXAMPLES[client], attention=scores)


def matched(client: str):
    return match_attention(to_global(sent(client), MAP), TransformContext(W, MAP))


@pytest.mark.parametrize(("client", "kept"), [("a", (3, 1)), ("b", (1, 3, 0, 4)), ("c", (4, 3, 2, 1, 0))])
def test_each_client_keeps_its_most_attended_channels_in_their_order(client, kept):
    assert sent(client).spec.kept == {"hidden": kept}


@pytest.mark.parametrize(
    ("client", "bias", "held"),
    [
        # Equation 8 (highest first): channel 3, + 1, moves to position 0, channel 1, + 1, to position 1; the
        # pruned channels (4, 0, 2) follow untrained.
        ("a", [4, 2, 4, 0, 2], [1, 1, 0, 0, 0]),
        # 1 + 2, 3 + 2, 0 + 2, 4 + 2, and 2 untrained.
        ("b", [3, 5, 2, 6, 2], [1, 1, 1, 1, 0]),
        # All of them plus 4.
        ("c", [8, 7, 6, 5, 4], [1, 1, 1, 1, 1]),
    ],
)
def test_matching_moves_each_clients_channels_to_the_positions_of_their_rank(client, bias, held):
    global_update = matched(client)
    model = {name: W[name] + global_update.delta[name] for name in W}
    assert model["hidden.bias"].tolist() == bias
    assert global_update.coverage["hidden.bias"].astype(int).tolist() == held
    assert global_update.coverage["hidden.weight"].astype(int).tolist() == [[h, h] for h in held]
    assert global_update.coverage["out.weight"].astype(int).tolist() == [held, held]
    assert global_update.coverage["out.bias"].all()


def test_matching_also_moves_the_columns_of_the_consumer():
    # Client a: the columns of channels 3 and 1, plus 1, come first, then 4, 0 and 2 unchanged.
    model = W["out.weight"] + matched("a").delta["out.weight"]
    assert model[0].tolist() == [301, 101, 400, 0, 200]


def test_a_matched_model_computes_the_same_as_the_clients_own_model():
    def classes(model, x):
        hidden = np.maximum(model["hidden.weight"] @ x + model["hidden.bias"], 0)
        return model["out.weight"] @ hidden + model["out.bias"]

    global_update = to_global(sent("b"), MAP)
    own = {name: W[name] + global_update.delta[name] for name in W}
    moved = {name: W[name] + matched("b").delta[name] for name in W}
    x = np.array([0.5, -0.25], np.float32)
    assert np.allclose(classes(own, x), classes(moved, x))


def test_the_last_positions_may_keep_the_values_of_the_global_model():
    # a keeps 3 and 1, moved by 1: positions 0 and 1 become 3 + 1 and 1 + 1. Positions 2, 3, 4 keep the global
    # model's own 2, 3, 4; if moved, they would hold the channels that a pruned: 4, 0, 2.
    in_place = attention_matching(rest="in-place")(to_global(sent("a"), MAP), TransformContext(W, MAP))
    assert (W["hidden.bias"] + in_place.delta["hidden.bias"]).tolist() == [4, 2, 2, 3, 4]
    assert (W["hidden.bias"] + matched("a").delta["hidden.bias"]).tolist() == [4, 2, 4, 0, 2]
    assert in_place.coverage["hidden.bias"].tolist() == [True, True, False, False, False]


def test_a_round_that_reorders_channels_adds_no_momentum():
    momentum = StrategySpec(
        pruner=Component(name="attention", options={"first_round": "train"}),
        transforms=(Component(name="attention-matching"), Component(name="fill-with-global")),
        server_optimizer=Component(name="momentum"),
    )
    updates = [sent(client) for client in "abc"]
    plain = close_round(ATTENDING, State(params=W), updates, MAP)
    after = close_round(make_strategy(momentum, RATIOS), State(params=W), updates, MAP)
    assert after.server_optimizer == {}
    assert all((after.params[name] == plain.params[name]).all() for name in W)


def test_recovery_covers_everything_with_the_global_model():
    recovered = cover_missing(matched("a"), TransformContext(W, MAP))
    assert all(held.all() for held in recovered.coverage.values())
    assert {n: a.tolist() for n, a in recovered.delta.items()} == {
        n: a.tolist() for n, a in matched("a").delta.items()
    }


def test_recovery_of_an_unmatched_update_counts_missing_channels_as_unchanged():
    small = update("a", arrays(1), spec=SubModelSpec(kept={"hidden": 2}))
    recovered = cover_missing(to_global(small, MAP), TransformContext(W, MAP))
    assert recovered.coverage["hidden.bias"].all()
    assert recovered.delta["hidden.bias"].tolist() == [*arrays(1)["hidden.bias"][:2].tolist(), 0, 0, 0]


def test_the_global_model_is_the_mean_of_the_recovered_models_weighted_by_examples():
    after = close_round(ATTENDING, State(params=W), [sent(client) for client in "abc"], MAP)
    # |D_c| / |D| = 0.2, 0.3, 0.5. Per position, from the biases above:
    #   0.2 * 4 + 0.3 * 3 + 0.5 * 8 = 5.7
    #   0.2 * 2 + 0.3 * 5 + 0.5 * 7 = 5.4
    #   0.2 * 4 + 0.3 * 2 + 0.5 * 6 = 4.4
    #   0.2 * 0 + 0.3 * 6 + 0.5 * 5 = 4.3
    #   0.2 * 2 + 0.3 * 2 + 0.5 * 4 = 3.0
    assert after.params["hidden.bias"] == pytest.approx([5.7, 5.4, 4.4, 4.3, 3.0], rel=1e-6)
    # The consumer, column by column: a is 301 101 400 0 200, b is 102 302 2 402 200, c is 404 304 204 104 4.
    #   0.2 * 301 + 0.3 * 102 + 0.5 * 404 = 292.8
    #   0.2 * 101 + 0.3 * 302 + 0.5 * 304 = 262.8
    #   0.2 * 400 + 0.3 *   2 + 0.5 * 204 = 182.6
    #   0.2 *   0 + 0.3 * 402 + 0.5 * 104 = 172.6
    #   0.2 * 200 + 0.3 * 200 + 0.5 *   4 = 102.0
    columns = [292.8, 262.8, 182.6, 172.6, 102.0]
    assert after.params["out.weight"] == pytest.approx(np.array([columns, columns]), rel=1e-6)
    # Target layer: a is 31 11 40 0 20, b is 12 32 2 42 20, c is 44 34 24 14 4; position 0 is
    # 0.2 * 31 + 0.3 * 12 + 0.5 * 44 = 31.8, and position 4 is 4 + 6 + 2 = 12.
    assert after.params["hidden.weight"][0] == pytest.approx([31.8, 31.8], rel=1e-6)
    assert after.params["hidden.weight"][4] == pytest.approx([12, 12], rel=1e-6)
    # The output bias: 0.2 * 1 + 0.3 * 2 + 0.5 * 4 = 2.8.
    assert after.params["out.bias"] == pytest.approx([2.8, 2.8], rel=1e-6)
    assert after.ordered
    assert after.observed["weights"] == pytest.approx({"a": 0.2, "b": 0.3, "c": 0.5})


def test_without_recovery_the_mean_is_over_the_holders_of_each_position():
    holders = make_strategy(StrategySpec(transforms=(Component(name="attention-matching"),)), RATIOS)
    after = close_round(holders, State(params=W), [sent(client) for client in "abc"], MAP)
    # b and c hold position 3: (0.3 * 6 + 0.5 * 5) / 0.8 = 5.375. Only c holds position 4: 4.
    assert after.params["hidden.bias"][3:] == pytest.approx([5.375, 4.0], rel=1e-6)


def test_round_one_sends_the_whole_network_and_asks_for_personal_pruning():
    clients = [Client("a", 1), Client("b", 2), Client("c", 3)]
    first = plan(ATTENDING, State(params=W), clients, NETWORK, np.random.default_rng(0)).assignments
    assert {name: assignment.cut.spec for name, assignment in first.items()} == dict.fromkeys(
        "abc", SubModelSpec()
    )
    assert {n: assignment.cut.personal.ratios for n, assignment in first.items()} == {
        n: {"hidden": RATIO[n]} for n in "abc"
    }
    assert all(assignment.cut.train for assignment in first.values())
    assert all([p.name for p in assignment.cut.objectives] == ["attentive"] for assignment in first.values())


def test_later_rounds_send_nested_prefixes_without_personal_pruning():
    clients = [Client("a", 1), Client("b", 2), Client("c", 3)]
    after = close_round(ATTENDING, State(params=W), [sent(client) for client in "abc"], MAP)
    later = plan(ATTENDING, after, clients, NETWORK, np.random.default_rng(0)).assignments
    # The last ceil(5 p) channels are removed: 2, 4 and 5 stay, each a prefix of the next.
    assert {name: assignment.cut.spec.kept for name, assignment in later.items()} == {
        "a": {"hidden": 2},
        "b": {"hidden": 4},
        "c": {},
    }
    assert all(
        assignment.cut.personal is None and assignment.cut.objectives == () for assignment in later.values()
    )


def test_from_round_two_on_channels_are_not_reordered():
    global_update = to_global(update("a", arrays(1), spec=SubModelSpec(kept={"hidden": 2})), MAP)
    assert match_attention(global_update, TransformContext(W, MAP)) is global_update


def test_the_first_round_can_compute_scores_without_training():
    score_only = make_strategy(
        StrategySpec(pruner=Component(name="attention", options={"first_round": "score-only"})), RATIOS
    )
    first = plan(score_only, State(params=W), [Client("a", 1)], NETWORK, np.random.default_rng(0)).assignments
    assert not first["a"].cut.train


def test_blocks_that_must_stay_whole_are_matched_as_blocks():
    # Two blocks of two channels, as a group normalisation has them. Scores by block: 0.45 and 0.5.
    segment = (Segment(channels=4, group="g"),)
    blocks = ChannelMap(
        groups={"g": ChannelGroup(channels=4, layers=("g",), multiple=2)},
        parameters={"g.weight": ParameterLayout(shape=(4, 1), axes={0: segment})},
    )
    scores = {"g": np.array([0.9, 0.0, 0.8, 0.2], np.float32)}
    spec = personal_spec(scores, {"g": 0.5}, blocks)
    assert spec.kept == {"g": (2, 3)}
    w = {"g.weight": np.array([[0.0], [1], [2], [3]], np.float32)}
    groups = {"model": {"g.weight": np.array([[10.0], [10]], np.float32)}, "attention": scores}
    block_update = match_attention(
        to_global(ClientUpdate("a", spec, groups, 1), blocks), TransformContext(w, blocks)
    )
    assert (w["g.weight"] + block_update.delta["g.weight"]).ravel().tolist() == [12, 13, 0, 1]
    assert block_update.coverage["g.weight"].ravel().tolist() == [True, True, False, False]


def test_matching_equal_scores_changes_nothing():
    even = {"hidden": np.full(CHANNELS, 0.5, np.float32)}
    global_update = to_global(update("a", arrays(1), attention=even), MAP)
    same = match_attention(global_update, TransformContext(W, MAP))
    assert all(np.allclose(same.delta[n], global_update.delta[n], atol=1e-4) for n in W)
    assert permute(W, {"hidden": range(CHANNELS)}, MAP)["hidden.bias"] is W["hidden.bias"]


# --- one common order ---
COMMON = make_strategy(
    StrategySpec(pruner=Component(name="attention"), transforms=(Component(name="fill-with-global"),)), RATIOS
)
CLIENTS = [Client("a", 1), Client("b", 2), Client("c", 3)]


def ranking_update(client: str) -> ClientUpdate:
    """An update of the common order's first round: c trains, a and b only send their scores."""
    if client == "c":
        return sent(client)
    return ClientUpdate(
        client,
        sent(client).spec,
        {"model": {}, "attention": {"hidden": np.array(SCORES[client], np.float32)}},
        EXAMPLES[client],
    )


def test_devices_prune_the_whole_network_by_attention_before_they_train_in_round_one():
    first = plan(COMMON, State(params=W), CLIENTS, NETWORK, np.random.default_rng(0)).assignments
    for client, assignment in first.items():
        cut = assignment.cut
        assert cut.spec == SubModelSpec()
        assert cut.train
        assert cut.returned is None
        assert cut.personal is not None
        assert cut.personal.ratios == {"hidden": RATIO[client]}
        assert cut.scored_by is not None
        assert cut.scored_by.name == "attentive"
        assert cut.scored_by not in cut.objectives


@pytest.mark.parametrize(
    ("tables", "ranked"),
    [(({}, {}), []), (({"hidden": 0.6}, {}), ["hidden"]), (({"hidden": 0.0}, {"wide*": 0.2}), ["wide"])],
)
def test_devices_rank_only_channels_that_some_tier_cuts(tables, ranked) -> None:
    groups = {**MAP.groups, "wide": ChannelGroup(channels=3, layers=("wide",))}
    network = replace(NETWORK, channel_map=MAP.model_copy(update={"groups": groups}))
    strategy = make_strategy(StrategySpec(pruner=Component(name="attention")), tables)
    first = plan(strategy, State(params=W), CLIENTS[:2], network, np.random.default_rng(0)).assignments
    for assignment in first.values():
        personal = assignment.cut.personal
        assert sorted(personal.ratios if personal else {}) == ranked
        assert list(assignment.cut.scored_by.options["layers"] if personal else ()) == ranked


def test_channels_may_be_ranked_by_the_energy_of_what_they_give() -> None:
    spec = StrategySpec(pruner=Component(name="attention", options={"scores": "output-energy"}))
    first = plan(
        make_strategy(spec, RATIOS), State(params=W), CLIENTS, NETWORK, np.random.default_rng(0)
    ).assignments
    scored_by = Component(name="output-energy", options={"layers": ("hidden",)})
    assert [assignment.cut.scored_by for assignment in first.values()] == [scored_by] * len(CLIENTS)


@pytest.mark.parametrize("options", [{"scores": "energy"}, {"scores": "output-energy", "keep": "lowest"}])
def test_scores_that_nobody_measures_are_refused(options) -> None:
    with pytest.raises(ConfigError, match="scores"):
        make_strategy(StrategySpec(pruner=Component(name="attention", options=options)), RATIOS)


@pytest.mark.parametrize(("first_round", "trains"), [("train", True), ("score-only", False)])
def test_all_devices_may_train_or_only_measure_in_round_one(first_round, trains):
    options = {"first_round": first_round}
    spec = StrategySpec(pruner=Component(name="attention", options=options))
    first = plan(make_strategy(spec, RATIOS), State(params=W), CLIENTS, NETWORK, np.random.default_rng(0))
    assert all(assignment.cut.train is trains for assignment in first.assignments.values())


def test_the_common_order_is_the_mean_of_the_scores_by_examples_and_moves_no_channel():
    after = close_round(COMMON, State(params=W), [ranking_update(client) for client in "abc"], MAP)
    # 0.2 * a + 0.3 * b + 0.5 * c, for instance 0.2 * 0.3 + 0.3 * 0.5 + 0.5 * 0.1 = 0.26.
    assert after.pruning["hidden"] == pytest.approx([0.26, 0.53, 0.2, 0.59, 0.41], rel=1e-6)
    # Only c trained: the others do not count in the mean, so the model moves by c's 4 in every place.
    assert after.params["hidden.bias"] == pytest.approx(I + 4)
    assert not after.ordered


def test_later_rounds_cut_nested_sub_models_by_the_common_order():
    after = close_round(COMMON, State(params=W), [ranking_update(client) for client in "abc"], MAP)
    later = plan(COMMON, after, CLIENTS, NETWORK, np.random.default_rng(0)).assignments
    # Ranked by the mean: 3 1 4 0 2. Tier 1 keeps 3 and 1, tier 2 also 4 and 0.
    assert {name: assignment.cut.spec.kept for name, assignment in later.items()} == {
        "a": {"hidden": (1, 3)},
        "b": {"hidden": (0, 1, 3, 4)},
        "c": {},
    }
    # The order of the first ranking is kept: later scores do not change it.
    again = close_round(COMMON, after, [ranking_update("c")], MAP)
    assert again.pruning["hidden"] is after.pruning["hidden"]


def test_the_least_attended_channels_stay_if_the_recipe_says_so():
    options = {"keep": "lowest"}
    lowest = make_strategy(StrategySpec(pruner=Component(name="attention", options=options)), RATIOS)
    (assignment,) = plan(
        lowest, State(params=W), CLIENTS[:1], NETWORK, np.random.default_rng(0)
    ).assignments.values()
    assert assignment.cut.scored_by is not None
    assert assignment.cut.scored_by.options["lowest"]


# --- channels that do not correspond ---
def test_moving_channels_by_opposite_orders_shrinks_their_average():
    orders = {"a": [0.5, 0.4, 0.3, 0.2, 0.1], "c": [0.1, 0.2, 0.3, 0.4, 0.5]}
    kernel = np.diag(np.full(5, 3.0))[:, :2].astype(np.float32)
    params = {**W, "hidden.weight": kernel, "out.weight": np.zeros((2, 5), np.float32)}
    updates = [
        update(
            client,
            {name: np.zeros_like(array) for name, array in W.items()},
            attention={"hidden": np.array(scores, np.float32)},
        )
        for client, scores in orders.items()
    ]
    after = close_round(ATTENDING, State(params=params), updates, MAP)
    # Rows 0 and 1 of a meet zeros of c: every entry halves, and the norm with them.
    assert after.observed["norm_ratios"] == pytest.approx({"hidden.weight": 0.5**0.5})
    assert "norm_ratios" not in close_round(COMMON, State(params=params), updates, MAP).observed
