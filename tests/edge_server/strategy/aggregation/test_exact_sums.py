"""Exact sums: the same bits in any order and grouping, and a mean within the stated error."""

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_client.pruning.index_sets import full_index_set
from edge_server.strategy.aggregation.accumulator import (
    COARSE,
    FINE,
    MAX_UPDATES,
    MAX_WEIGHT,
    WHOLE_FROM,
    ExactAccumulator,
    join_sums,
)
from edge_server.strategy.aggregation.array_stores import MemoryArrays
from edge_server.strategy.aggregation.means import exact_mean
from edge_server.strategy.aggregation.partial_sums import (
    add_sums,
    check_sum,
    sum_clients,
    sum_updates,
    without_arrays,
)
from edge_server.strategy.aggregation.updates import GlobalUpdate, to_global
from edge_server.strategy.closing import close_round, whole_weights
from edge_server.strategy.components import make_strategy, needs_each_update
from edge_server.strategy.strategy import start_state
from schemas.errors import InvariantError, PeerError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from tests.edge_server.strategy.network import CHANNELS, MAP, RATIOS, arrays, update

WEIGHT = "hidden.weight"
COUNT = 60
WEIGHTS = [1 + 37 * k % 1000 for k in range(COUNT)]


def kept(k: int) -> int:
    return 2 + k % (CHANNELS - 1)


def updates(count: int = COUNT, *, scale: float = 1.0) -> list[GlobalUpdate]:
    """Sub-models of unlike widths, with changes over nine orders of magnitude."""
    return [
        to_global(
            update(
                f"c{k}",
                {name: np.float32(scale * 10.0 ** (k % 9 - 8)) * array for name, array in arrays(k).items()},
                spec=SubModelSpec(kept={"hidden": kept(k)} if kept(k) < CHANNELS else {}),
            ),
            MAP,
        )
        for k in range(count)
    ]


def summed(
    chosen: Sequence[GlobalUpdate], weights: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    adding = ExactAccumulator(WEIGHT, 0, CHANNELS, (CHANNELS, 2))
    for each, weight in zip(chosen, weights, strict=True):
        adding.add(each, np.float64(weight))
    return adding.carry_over()


def test_neither_order_nor_grouping_changes_a_bit():
    every, whole = updates(), summed(updates(), WEIGHTS)
    for seed in range(20):
        rng = Random(seed)
        order = rng.sample(range(COUNT), COUNT)
        cuts = sorted(rng.sample(range(1, COUNT), 4))
        groups = [order[a:b] for a, b in zip([0, *cuts], [*cuts, COUNT], strict=True)]
        parts = [summed([every[k] for k in group], [WEIGHTS[k] for k in group]) for group in groups]
        rng.shuffle(parts)
        adding = ExactAccumulator(WEIGHT, 0, CHANNELS, (CHANNELS, 2))
        for part in parts:
            adding.add_sums(*part)
        assert adding.total.tobytes() == join_sums(*whole).tobytes()
        assert all(np.array_equal(*pair) for pair in zip(adding.carry_over(), whole, strict=True))


@pytest.mark.parametrize("scale", [1e6, 1.0, 1e-3, 5e-7])
def test_the_mean_is_within_the_stated_error(scale):
    every, weights = updates(9, scale=scale), [1, 2, 3, 600, 5, 50, 7, 8, 900]
    coarse, fine = summed(every, weights)
    dense = [each.delta[WEIGHT] for each in every]
    largest = Fraction(max(float(np.abs(values).max()) for values in dense))
    for row, column in np.ndindex(CHANNELS, 2):
        holders = [k for k in range(9) if row < kept(k)]
        weight = sum(weights[k] for k in holders)
        true = sum(weights[k] * Fraction(float(dense[k][row, column])) for k in holders)
        found = Fraction(float(coarse[row, column])) * Fraction(COARSE)
        found += Fraction(float(fine[row, column])) * Fraction(FINE)
        error = abs(found - true) / weight
        assert error <= Fraction(FINE) / 2 * len(holders) / weight
        assert error <= largest / 2**20


def test_whole_numbers_of_the_largest_round_stay_exact():
    # 2^18 updates with changes of up to 2^20 and weights of 2^28 together.
    change = {name: np.full_like(array, 2**20) for name, array in arrays(0).items()}
    # 2^20 in steps of 2^-4 is a float32; 1/64 - 2^-20 leaves the largest rest that a coarse unit can.
    change[WEIGHT][:] = [[2**20, -(2**20)], [2**20 - 2**-4, 0.015624], [-0.015624, 1], [0, 0], [0, 0]]
    weight = MAX_WEIGHT // MAX_UPDATES
    coarse, fine = summed([to_global(update("c", change), MAP)], [weight])
    assert (np.abs(coarse) * MAX_UPDATES <= 2.0**53).all()
    assert (np.abs(fine) * MAX_UPDATES <= 2.0**53).all()
    assert np.array_equal(join_sums(coarse, fine)[0], [2.0**30, -(2.0**30)])
    one, many = ExactAccumulator(WEIGHT, 0, CHANNELS, (CHANNELS, 2)), to_global(update("c", change), MAP)
    for _ in range(1000):
        one.add(many, np.float64(weight))
    assert np.array_equal(one.total, 1000 * weight * many.delta[WEIGHT].astype(np.float64))


def test_a_round_that_does_not_fit_is_refused():
    with pytest.raises(InvariantError, match="more than one round can add up"):
        exact_mean(updates(2), [MAX_WEIGHT, 1])


def test_equal_updates_give_that_update():
    one = to_global(update("c", arrays(3)), MAP)
    mean = exact_mean([one] * 7, [3] * 7)
    assert all(np.array_equal(mean[name], one.delta[name]) for name in MAP.parameters)


def test_updates_that_count_nothing_change_nothing():
    one, other = (to_global(update(f"c{k}", arrays(k)), MAP) for k in (1, 2))
    mean = exact_mean([one, other], [5, 0])
    assert all(np.array_equal(mean[name], one.delta[name]) for name in MAP.parameters)


def test_exact_sums_are_those_of_doubles_but_for_a_rounding_error():
    # 1 of 3 examples: 1/3 and 2/3 are no doubles, so that the two means may differ, by a rounding error.
    strategy = make_strategy(StrategySpec(), RATIOS)
    state = start_state(strategy, arrays(0))
    assert state.exact
    sent = [update(f"c{k}", arrays(k), examples=k) for k in (1, 2)]
    exact = close_round(strategy, state, sent, MAP)
    doubles = close_round(strategy, type(state)(arrays(0)), sent, MAP)
    assert exact.exact
    assert not doubles.exact
    assert all(np.allclose(exact.params[n], doubles.params[n], rtol=1e-6, atol=1e-7) for n in MAP.parameters)
    assert exact.observed == doubles.observed


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"combiner": Component(name="median")}, "combiner 'median'"),
        ({"weighting": Component(name="igfl-self")}, "weighting 'igfl-self'"),
        ({"selection": Component(name="attention")}, "selection 'attention'"),
        ({"transforms": (Component(name="normalise-steps"),)}, "transform 'normalise-steps'"),
        ({"groups": (Component(name="control"),)}, "group 'control'"),
    ],
)
def test_components_that_need_each_update_are_named(changed, named):
    spec = StrategySpec(**changed)
    assert list(needs_each_update(spec)) == [named]
    strategy = make_strategy(spec, RATIOS)
    assert not strategy.summed
    assert not start_state(strategy, arrays(0)).exact


def closed_in_parts(sent, spec, groups):
    """The round's end where the updates of each group are added apart, as another process would."""
    strategy = make_strategy(spec, RATIOS)
    state = start_state(strategy, arrays(0))
    weights = whole_weights(strategy, state, sent)
    assert weights is not None
    parts = []
    for group in groups:
        parts.append(sum_clients(group, weights, strategy.transforms, MAP, keep=MemoryArrays))
    apart = {source.client for group in groups for source in group}
    left = [without_arrays(s) if s.client in apart else s for s in sent]
    return close_round(strategy, state, left, MAP, parts=parts), close_round(strategy, state, sent, MAP)


@pytest.mark.parametrize(
    "spec",
    [
        StrategySpec(),
        StrategySpec(weighting=Component(name="equal"), transforms=(Component(name="discount-staleness"),)),
        StrategySpec(
            transforms=(Component(name="fill-with-global", options={"decay": 0.1}),),
            server_optimizer=Component(name="momentum", options={"beta": 0.5}),
        ),
    ],
)
def test_a_round_in_parts_ends_as_one_that_is_added_at_once(spec):
    specs = (SubModelSpec(), SubModelSpec(kept={"hidden": 2}), SubModelSpec(kept={"hidden": (4, 0)}))
    sent = [
        replace(update(f"c{k:02}", arrays(k), spec=specs[k % 3], examples=k), metrics={"staleness": k % 2})
        for k in range(12)
    ]
    for groups in ([sent], [sent[:5], sent[5:9]], [sent[8:2:-1], sent[:2]]):
        apart, at_once = closed_in_parts(sent, spec, groups)
        assert all(apart.params[n].tobytes() == at_once.params[n].tobytes() for n in MAP.parameters)
        assert apart.observed == at_once.observed


def test_sums_of_sums_are_the_sum():
    every = updates(9)
    parts = [sum_updates(every[a:b], WEIGHTS[a:b], MAP, keep=MemoryArrays) for a, b in ((0, 4), (4, 9))]
    added, whole = add_sums(parts, MAP), sum_updates(every, WEIGHTS[:9], MAP, keep=MemoryArrays)
    assert added.members == whole.members
    for group, arrays_ in whole.groups.items():
        assert all(np.array_equal(added.groups[group][name], arrays_[name]) for name in MAP.parameters)
    check_sum(added.groups, MAP)


def test_a_member_of_two_sums_is_found():
    part = sum_updates(updates(2), [1, 2], MAP, keep=MemoryArrays)
    with pytest.raises(InvariantError, match="are in two sums"):
        add_sums([part, part], MAP)


def test_a_sum_of_other_members_than_expected_is_refused():
    sent = [update(f"c{k}", arrays(k), examples=5) for k in range(3)]
    strategy = make_strategy(StrategySpec(), RATIOS)
    state = start_state(strategy, arrays(0))
    part = sum_updates([to_global(sent[0], MAP)], [5], MAP, keep=MemoryArrays)
    left = [without_arrays(each) for each in sent[:2]]
    for wrong in ([part], [], [replace(part, members={"c0": 5, "c1": 4})]):
        with pytest.raises(InvariantError, match="do not contain the updates"):
            close_round(strategy, state, [*left, sent[2]], MAP, parts=wrong)


@pytest.mark.parametrize(
    ("fine", "words"),
    [
        (None, "has the groups"),
        ({"hidden.bias": np.zeros(5)}, "other parameters"),
        (np.zeros(2, np.float32), "wrong type"),
        (np.zeros(3), "wrong type or shape"),
        (np.array([0.5, 0]), "whole numbers"),
        (np.array([2.0**53, 0]), "whole numbers"),
        (np.array([np.nan, 0]), "whole numbers"),
    ],
)
def test_sums_that_are_none_are_refused(fine, words):
    groups = dict(sum_updates(updates(2), [1, 2], MAP, keep=MemoryArrays).groups)
    known = dict(groups.pop("fine"))
    if fine is not None:
        groups["fine"] = fine if isinstance(fine, dict) else {**known, "out.bias": fine}
    with pytest.raises(PeerError, match=words):
        check_sum(groups, MAP)


@pytest.mark.parametrize(
    "step", [WHOLE_FROM, WHOLE_FROM * (1 + 2.0**-23), WHOLE_FROM * (1 - 2.0**-24), 3e-9, 0.7]
)
def test_codes_are_added_as_their_numbers_are(step):
    codes = np.arange(-7, 8, dtype=np.int8).reshape(3, 5)
    scales = np.array([step, 0, step * 1.37], np.float32)
    coded, plain = (ExactAccumulator("w", 0, 3, (3, 5)) for _ in range(2))
    place = full_index_set((3, 5))
    coded.add_values(codes, scales, place, 599.0)
    plain.add_values(codes.astype(np.float32) * scales[:, None], None, place, 599.0)
    for found, expected in zip(coded.carry_over(), plain.carry_over(), strict=True):
        np.testing.assert_array_equal(found, expected)
