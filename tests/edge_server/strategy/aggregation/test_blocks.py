"""Rounds computed in blocks: the block size and the storage of updates do not change the result.

The network is larger than one cell of sums: hidden.weight is [40, 300], which is three cells.
"""

import os
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from edge_client.compression.chain import make_chain
from edge_client.compression.decoding import decode_groups
from edge_client.pruning.index_sets import expand, extract, permute, submodel_index_set
from edge_server.strategy.aggregation import blocks
from edge_server.strategy.aggregation.array_stores import FileArrays, MemoryArrays, NewArrayStore
from edge_server.strategy.aggregation.combiners import COMBINERS
from edge_server.strategy.aggregation.deltas import checked_order, intersection, sum_weights
from edge_server.strategy.aggregation.means import mean_over_holders
from edge_server.strategy.aggregation.transforms import TRANSFORMS
from edge_server.strategy.aggregation.updates import ClientUpdate, HeldCoordinates, to_global
from edge_server.strategy.closing import close_round, load_checkpoint, save_checkpoint
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups.registry import GROUPS
from edge_server.strategy.privacy.mechanism import Gaussian, initial_state, noisy_change
from edge_server.strategy.strategy import State, start_state
from edge_server.strategy.weighting.registry import WEIGHTINGS
from schemas.errors import InvariantError
from schemas.strategy import Component, StrategySpec
from schemas.submodel import ChannelGroup, ChannelMap, ParameterLayout, Segment, SubModelSpec
from schemas.tensors.files import FileGroups
from tests.groups import encode_groups
from tests.slow import slow

_KEPT = (Segment(channels=40, group="hidden"),)
MAP = ChannelMap(
    groups={"hidden": ChannelGroup(channels=40, layers=("hidden",))},
    parameters={
        "hidden.weight": ParameterLayout(shape=(40, 300), axes={0: _KEPT}),
        "hidden.running_var": ParameterLayout(shape=(40,), axes={0: _KEPT}),
        # Each channel is three positions wide; the first two positions belong to no channel.
        "out.weight": ParameterLayout(
            shape=(2, 122), axes={1: (Segment(channels=2), Segment(channels=40, group="hidden", repeat=3))}
        ),
        "scale": ParameterLayout(shape=()),
    },
)
SPECS = (
    SubModelSpec(),
    SubModelSpec(kept={"hidden": 13}),
    SubModelSpec(kept={"hidden": tuple(np.random.default_rng(5).permutation(40)[:21].tolist())}),
    SubModelSpec(kept={"hidden": tuple(range(8, 30))}),
)


def arrays(seed: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {n: random.normal(size=p.shape).astype(np.float32) for n, p in MAP.parameters.items()}


def sent(count: int = 7, *, scores: bool = False, control: bool = False) -> list[ClientUpdate]:
    """Updates of every kind of sub-model; the sixth contains only one layer."""
    made = []
    for k in range(count):
        spec = SPECS[k % len(SPECS)]
        groups = {"model": extract(arrays(k), spec, MAP)}
        if k == 5:
            groups["model"] = {"out.weight": groups["model"]["out.weight"]}
        if control:
            groups["control"] = extract(arrays(100 + k), spec, MAP)
        if scores:
            groups["attention"] = {"hidden": np.random.default_rng(k).random(40).astype(np.float32)}
        made.append(ClientUpdate(f"c{k}", spec, groups, k + 1, {"steps": 3 + k, "staleness": k % 2}))
    return made


def spooled(tmp_path, update: ClientUpdate) -> ClientUpdate:
    path = tmp_path / update.client
    path.write_bytes(encode_groups(update.groups))
    return replace(update, groups=FileGroups(path))


def spec_of(concept: str, name: str) -> StrategySpec:
    many = concept in ("transforms", "groups")
    return StrategySpec(**{concept: (Component(name=name),) if many else Component(name=name)})


CASES = {
    **{name: spec_of("combiner", name) for name in COMBINERS},
    **{name: spec_of("weighting", name) for name in WEIGHTINGS},
    **{name: spec_of("transforms", name) for name in TRANSFORMS},
    **{name: spec_of("groups", name) for name in ("control", "last-step", "overlap")},
    "decay": StrategySpec(transforms=(Component(name="fill-with-global", options={"decay": 0.1}),)),
    "adafl": spec_of("selection", "attention"),
    "adam": spec_of("server_optimizer", "adam"),
    "momentum": spec_of("server_optimizer", "momentum"),
    "attending": StrategySpec(
        transforms=tuple(Component(name=name) for name in ("attention-matching", "fill-with-global")),
        groups=(Component(name="last-step"), Component(name="control")),
        selection=Component(name="attention"),
        combiner=Component(name="krum"),
    ),
    "late": StrategySpec(
        transforms=tuple(Component(name=name) for name in ("discount-staleness", "attention-matching")),
        weighting=Component(name="igfl-self"),
    ),
}


def two_rounds(case: str, updates: list[ClientUpdate], keep: NewArrayStore = MemoryArrays) -> State:
    strategy = make_strategy(CASES[case], (0.0,))
    state = start_state(strategy, arrays(99), keep=keep)
    return close_round(
        strategy, close_round(strategy, state, updates, MAP, keep=keep), updates, MAP, keep=keep
    )


@pytest.mark.parametrize(
    "case", [case if case in ("mean", "attending", "overlap", "adam") else slow(case) for case in CASES]
)
def test_block_size_and_storage_do_not_change_the_result(case, tmp_path, monkeypatch):
    updates = sent(scores=case in ("attention-matching", "attending", "late"), control=True)
    whole = two_rounds(case, updates)
    for number, size in enumerate((1, 700, 5000)):
        monkeypatch.setattr(blocks, "NUMBERS", size)
        monkeypatch.setattr(blocks, "ALL_NUMBERS", 3 * size)
        folder = tmp_path / str(number)
        folder.mkdir()
        cut = two_rounds(case, [spooled(folder, update) for update in updates] if number else updates)
        assert all((whole.params[name] == cut.params[name]).all() for name in MAP.parameters)
        assert whole.observed == cut.observed
        for group, held in whole.groups.items():
            assert all((array == cut.groups[group][name]).all() for name, array in held.items())


@pytest.mark.parametrize("case", ["control", "last-step", "overlap", "adam", "momentum", "attending"])
def test_a_state_with_its_arrays_in_a_file_equals_one_in_memory(case, tmp_path):
    updates, keep = sent(scores=case == "attending", control=True), partial(FileArrays, tmp_path)
    ended, in_file = two_rounds(case, updates), two_rounds(case, updates, keep)
    save_checkpoint(tmp_path / "memory", ended)
    save_checkpoint(tmp_path / "file", in_file)
    assert all((ended.params[name] == in_file.params[name]).all() for name in MAP.parameters)
    assert (tmp_path / "memory").read_bytes() == (tmp_path / "file").read_bytes()
    # A state loaded into such a file is saved unchanged.
    again = load_checkpoint(tmp_path / "file", {"model": ended.params}, keep=keep)
    save_checkpoint(tmp_path / "again", again)
    assert (tmp_path / "memory").read_bytes() == (tmp_path / "again").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "file", "memory"]


def test_the_block_size_does_not_change_the_noise(monkeypatch):
    mechanism = Gaussian(clip=None)
    updates = [to_global(update, MAP) for update in sent()]

    def released() -> dict[str, np.ndarray]:
        return dict(noisy_change(mechanism, initial_state(mechanism, bytes(32)), 1, updates, MAP)[0])

    whole = released()
    monkeypatch.setattr(blocks, "NUMBERS", 700)
    cut = released()
    assert all((whole[name] == cut[name]).all() for name in MAP.parameters)


@pytest.mark.parametrize("seed", range(10))
def test_the_mean_equals_that_of_whole_arrays_exactly(seed):
    random = np.random.default_rng(seed)
    specs = [SubModelSpec(kept={"hidden": tuple(random.permutation(40)[:n].tolist())}) for n in (3, 17, 40)]
    updates = [
        ClientUpdate(f"c{k}", spec, {"model": extract(arrays(k), spec, MAP)}, 1)
        for k, spec in enumerate([*SPECS, *specs])
    ]
    weights = random.random(len(updates))
    change = mean_over_holders([to_global(update, MAP) for update in updates], weights)
    for name, layout in MAP.parameters.items():
        total, held = np.zeros(layout.shape), np.zeros(layout.shape)
        for update, weight in zip(updates, weights, strict=True):
            full, covered = expand(update.groups["model"], update.spec, MAP)
            total += weight * np.where(covered[name], full[name], 0)
            held += weight * covered[name]
        expected = np.divide(total, held, out=np.zeros(layout.shape), where=held > 0).astype(np.float32)
        assert (change[name] == expected).all()


# --- coverage ---
@pytest.mark.parametrize("spec", SPECS)
def test_the_coverage_of_a_sub_model_equals_that_of_expanding(spec):
    full, covered = expand(extract(arrays(1), spec, MAP), spec, MAP)
    global_update = to_global(ClientUpdate("a", spec, {"model": extract(arrays(1), spec, MAP)}, 1), MAP)
    for name, layout in MAP.parameters.items():
        assert (global_update.coverage[name] == covered[name]).all()
        assert (global_update.delta[name] == full[name]).all()
        assert global_update.delta[name].shape == layout.shape
        assert submodel_index_set(layout, spec).size == covered[name].sum()


@pytest.mark.parametrize("spec", SPECS)
def test_rows_of_a_reordered_update_equal_those_of_its_reordered_arrays(spec):
    order = checked_order({"hidden": np.random.default_rng(3).permutation(40).tolist()}, MAP)
    update = ClientUpdate("a", spec, {"model": extract(arrays(1), spec, MAP)}, 1)
    global_update = to_global(update, MAP)
    moved, held = global_update.delta.with_order(order), global_update.held.with_order(order)
    expected = permute(dict(global_update.delta), {name: old.tolist() for name, old in order.items()}, MAP)
    covered = permute(dict(global_update.held), {name: old.tolist() for name, old in order.items()}, MAP)
    for name in MAP.parameters:
        assert (held[name] == covered[name]).all()
    for first in range(0, 40, 7):
        rows = moved.rows("hidden.weight", first, min(first + 7, 40))
        assert (rows == expected["hidden.weight"][first : first + 7]).all()
    assert (moved["out.weight"] == expected["out.weight"]).all()


def test_the_weight_of_a_coordinate_is_the_sum_over_its_holders():
    layout = MAP.parameters["out.weight"]
    reaches, weights = [submodel_index_set(layout, spec) for spec in SPECS], [0.1, 0.2, 0.3, 0.4]
    expected = sum(weight * reach.mask for reach, weight in zip(reaches, weights, strict=True))
    assert (sum_weights(reaches, weights) == expected).all()
    assert sum_weights(reaches[:1] * 3, [1.0, 1.0, 1.0]) == 3
    assert (intersection(reaches).mask == np.logical_and.reduce([reach.mask for reach in reaches])).all()


def test_an_order_that_lacks_a_channel_is_refused():
    with pytest.raises(InvariantError, match="expected all 40 channels"):
        checked_order({"hidden": range(39)}, MAP)


def test_arrays_that_do_not_fit_the_sub_model_are_refused_when_read():
    global_update = to_global(ClientUpdate("a", SPECS[1], {"model": arrays(1)}, 1), MAP)
    with pytest.raises(InvariantError, match=r"expected shape \(13, 300\), got \(40, 300\)"):
        global_update.delta["hidden.weight"]
    with pytest.raises(InvariantError, match="not in the channel map"):
        to_global(ClientUpdate("a", SPECS[0], {"model": {"other": np.zeros(1, np.float32)}}, 1), MAP)


def test_every_group_of_parameters_is_among_the_cases():
    others = {"class-means", "header", "mean-data", "ridge", "statistics", "tier-norms", "widths"}
    assert GROUPS.keys() - CASES.keys() == others


@pytest.mark.parametrize("numbers", [1, 500, 10**6])
def test_quantized_values_add_up_exactly_like_their_decoded_values(numbers, monkeypatch):
    monkeypatch.setattr(blocks, "NUMBERS", numbers)
    chain, holdings, weights = (
        make_chain([Component(name="int8")]),
        HeldCoordinates(MAP),
        [0.1, 0.2, 0.7, 0.3],
    )
    pairs = []
    for seed, spec in enumerate(SPECS):
        groups = decode_groups(chain.encode(extract(arrays(seed), spec, MAP), seed=seed).groups)
        plain = {"model": {name: groups["model"][name] for name in groups["model"]}}
        pairs.append(
            [to_global(ClientUpdate("a", spec, group, 1), MAP, holdings) for group in (groups, plain)]
        )
    quantized, plain_updates = ([pair[side] for pair in pairs] for side in (0, 1))
    total = np.zeros((40, 300))
    for update, weight in zip(plain_updates, weights, strict=True):
        total += np.float64(weight) * update.delta["hidden.weight"]
    for updates in (quantized, plain_updates):
        change = mean_over_holders(updates, weights)
        held = sum_weights([update.coverage.index_set("hidden.weight") for update in updates], weights)
        assert (change["hidden.weight"] == (total / held).astype(np.float32)).all()


def test_equal_prefixes_share_their_held_coordinates_and_lists_do_not():
    holdings, names = HeldCoordinates(MAP), set(MAP.parameters)
    prefix, list_of = SPECS[1], SPECS[2]
    assert holdings.coverage_of(names, prefix) is holdings.coverage_of(names, prefix.model_copy())
    assert holdings.coverage_of(names, prefix) is not holdings.coverage_of(names, SPECS[0])
    assert holdings.coverage_of(names, prefix) is not holdings.coverage_of(names - {"scale"}, prefix)
    assert holdings.coverage_of(names, list_of) is not holdings.coverage_of(names, list_of)


def test_reading_rows_that_were_never_written_is_an_error(tmp_path):
    store = FileArrays(tmp_path)
    store.put_rows("w", (np.dtype("<f4"), (4, 2)), 0, np.ones((2, 2), np.float32))
    assert store.rows("w", 0, 2).tolist() == [[1, 1], [1, 1]]
    with pytest.raises(OSError, match="'w'"):
        store.rows("w", 0, 4)


@pytest.mark.parametrize("kind", ["unnamed", "kept", "reopened"])
def test_the_file_of_arrays_is_closed_with_their_last_reference(tmp_path, kind):
    row = (np.dtype("<f4"), (2,))
    store = FileArrays(tmp_path, None if kind == "unnamed" else tmp_path / "kept")
    store.put_rows("w", row, 0, np.ones(2, np.float32))
    if kind == "reopened":
        store = FileArrays.reopen(tmp_path / "kept", {"w": row})
    assert store.rows("w", 0, 2).tolist() == [1, 1]
    descriptor = store._descriptor
    os.fstat(descriptor)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        del store
    assert said == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
