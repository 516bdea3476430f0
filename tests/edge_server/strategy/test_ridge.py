"""Heads in one round: the central solution for any split, heads for all tiers, what is refused."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import extract
from edge_client.pruning.surgery import arrays_of, compact
from edge_client.training import feature_sums
from edge_client.training.feature_sums import GROUP, parts_of
from edge_client.training.loop import train
from edge_client.training.objectives.registry import OBJECTIVES
from edge_server.strategy.aggregation.updates import ClientUpdate
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from edge_server.strategy.groups import least_squares
from edge_server.strategy.groups.device_sums import held_sums, last_groups
from edge_server.strategy.groups.feature_sums import RidgeHead
from edge_server.strategy.planning import cut, params_of
from edge_server.strategy.strategy import Network, State, Strategy, start_state
from schemas.errors import PeerError
from schemas.strategy import Component, StrategySpec, TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.edge_server.strategy.groups.test_least_squares import sums_of

SPEC = ModelSpec(name="mlp", input_shape=(1, 8, 8), num_classes=10)
MODULE = build_model(SPEC, seed=1)
MAP = trace_channels(MODULE, SPEC.input_shape)
NETWORK = Network(entry("mlp"), MAP)
DATA, TEST = load_source("digits").subset(range(600)), load_source("digits").subset(range(600, 1200))
FULL = SubModelSpec()
HEAD, LAST = "linear3", "linear2"
NARROW = SubModelSpec(kept={LAST: 20})  # only the head's inputs are cut
THIN = SubModelSpec(kept={"linear1": 60, LAST: 20})  # so are what they are computed from


def strategy(name: str = "ridge", **options: object) -> Strategy:
    parts = {"objectives": (Component(name=name),), "groups": (Component(name=name, options=options),)}
    return make_strategy(StrategySpec(**parts), (0.5, 0.0))


def sums(data: LabelledData, spec: SubModelSpec = FULL, name: str = "ridge") -> dict:
    """What a device with this data sends."""
    plan = TrainingPlan(objectives=(Component(name=name),), local_epochs=0, batch_size=8)
    return train(compact(MODULE, spec, MAP), data, plan).groups


def update(device: str, data: LabelledData, spec: SubModelSpec = FULL, name: str = "ridge") -> ClientUpdate:
    return ClientUpdate(device, spec, {"model": {}, **sums(data, spec, name)}, len(data))


def split(data: LabelledData, devices: int, *, by_class: bool = False) -> list[LabelledData]:
    order = np.argsort(data.labels, kind="stable") if by_class else np.arange(len(data))
    return [data.subset(part) for part in np.array_split(order, devices)]


def closed(updates: Sequence[ClientUpdate], before: State | None = None, **options: object) -> State:
    made = strategy(**options)
    return close_round(made, before or start_state(made, arrays_of(MODULE)), updates, MAP)


def features(data: LabelledData, spec: SubModelSpec = FULL) -> np.ndarray:
    """The head's inputs, layer by layer."""
    arrays = extract(arrays_of(MODULE), spec, MAP)
    values = data.inputs().reshape(len(data), -1)
    for layer in ("linear1", LAST):
        values = np.maximum(values @ arrays[f"{layer}.weight"].T + arrays[f"{layer}.bias"], 0)
    return values


def accuracy(arrays: dict[str, np.ndarray], spec: SubModelSpec = FULL) -> float:
    own = extract(arrays, spec, MAP)
    scores = features(TEST, spec) @ own[f"{HEAD}.weight"].T + own[f"{HEAD}.bias"]
    return float((scores.argmax(1) == TEST.labels).mean())


def head_in_full(parts: list[dict]) -> least_squares.Head:
    """The head of several devices in double precision."""
    rule = RidgeHead()
    sent = [ClientUpdate(f"d{k}", FULL, {"model": {}, **part}, 600) for k, part in enumerate(parts)]
    held = [each.parts() for each in held_sums(closed(sent).groups[GROUP])]
    return rule.solve([least_squares.total_of(each[part] for each in held) for part in (0, 1)], bias=True)


@pytest.mark.parametrize(
    ("devices", "by_class"), [(2, False), (7, False), (10, True), (60, True)], ids=lambda value: str(value)
)
def test_any_split_gives_the_weights_of_all_data_in_one_place(devices: int, by_class: bool) -> None:
    central = head_in_full([sums(DATA)])
    shared_out = head_in_full([sums(part) for part in split(DATA, devices, by_class=by_class)])
    assert np.abs(shared_out.weight - central.weight).max() < 1e-13 * np.abs(central.weight).max()
    assert np.abs(shared_out.offset - central.offset).max() < 1e-13 * np.abs(central.weight).max()


def test_the_head_is_the_one_of_least_squares_on_the_features() -> None:
    values, parts, targets = features(DATA), parts_of(DATA.inputs()), np.eye(10)[DATA.labels]
    fitted, held_out = (
        sums_of(values[parts == part].astype(float), targets[parts == part]) for part in (0, 1)
    )
    ratio = least_squares.choose_ratio(fitted, held_out)
    scale = least_squares.score_scale(held_out, least_squares.ridge(fitted, ratio))
    counts = np.bincount(DATA.labels, minlength=10)
    scale = scale * np.sqrt(counts.mean() / counts)
    wanted = least_squares.ridge(fitted + held_out, ratio).with_scale(scale)
    found = closed([update("a", DATA)]).params
    assert found[f"{HEAD}.weight"] == pytest.approx(wanted.weight.T, rel=1e-3, abs=1e-3)
    assert found[f"{HEAD}.bias"] == pytest.approx(wanted.offset, rel=1e-3, abs=1e-3)


def test_one_round_on_unlike_devices_is_far_better_than_chance() -> None:
    updates = [update(f"d{k}", part) for k, part in enumerate(split(DATA, 10, by_class=True))]
    state = closed(updates)
    assert accuracy(state.params) > 0.9
    assert all(np.array_equal(state.params[n], a) for n, a in arrays_of(MODULE).items() if HEAD not in n)
    means = [update(f"d{k}", part, name="class-means") for k, part in enumerate(split(DATA, 10))]
    assert accuracy(closed(means, name="class-means").params) > 0.8


def test_devices_train_nothing_and_send_nothing_of_the_model() -> None:
    made = cut(strategy(), start_state(strategy(), arrays_of(MODULE)), NETWORK, 0.5)
    assert not made.train
    assert made.returned == ()
    assert [objective.name for objective in made.objectives] == ["ridge"]


def test_only_channels_that_go_nowhere_but_into_the_head_leave_other_features_as_they_are() -> None:
    assert last_groups(MAP, HEAD) == {LAST}
    residual = build_model(ModelSpec(name="resnet20", input_shape=(3, 32, 32), num_classes=3))
    assert last_groups(trace_channels(residual, (3, 32, 32)), "fc") == frozenset()


def test_a_tier_whose_last_layer_is_cut_has_the_leading_block_of_all_sums() -> None:
    wide, narrow = split(DATA, 2)
    state = closed([update("wide", wide), update("narrow", narrow, NARROW)])
    own = params_of(strategy(), state, NARROW, MAP)
    alone = closed([update("all", DATA, NARROW)])
    same = params_of(strategy(), alone, NARROW, MAP)
    for kind in ("weight", "bias"):
        name = f"{HEAD}.{kind}"
        assert own[name] == pytest.approx(same[name], rel=1e-5, abs=1e-5)
    # The wide tier has the sums of its own devices alone, for the others lack most of its features.
    whole = closed([update("wide", wide)])
    assert np.array_equal(state.params[f"{HEAD}.weight"], whole.params[f"{HEAD}.weight"])


def test_a_tier_without_devices_has_a_head_of_the_sums_of_a_wider_one() -> None:
    state = closed([update("a", DATA)])
    own = params_of(strategy(), state, NARROW, MAP)
    assert accuracy(own, NARROW) > 0.65
    assert accuracy(own, NARROW) > accuracy(state.params, NARROW)


def test_a_tier_whose_other_layers_are_cut_has_a_head_of_its_own_devices() -> None:
    wide, thin = split(DATA, 2)
    state = closed([update("wide", wide), update("thin", thin, THIN)])
    own = params_of(strategy(), state, THIN, MAP)
    alone = closed([update("thin", thin, THIN)])
    assert np.array_equal(
        own[f"{HEAD}.weight"][:, :20], params_of(strategy(), alone, THIN, MAP)[f"{HEAD}.weight"][:, :20]
    )
    assert accuracy(own, THIN) > 0.6
    # Features that nobody has summed are those of no head.
    assert params_of(strategy(), state, SubModelSpec(kept={"linear1": 30}), MAP) is state.params


def test_without_a_device_of_the_full_network_its_head_is_that_of_the_widest_tier() -> None:
    state = closed([update("a", DATA, NARROW)])
    assert not state.params[f"{HEAD}.weight"][:, 20:].any()
    assert accuracy(state.params) == accuracy(state.params, NARROW)


def test_a_devices_later_sums_take_the_place_of_its_earlier_ones() -> None:
    first, second = split(DATA, 2)
    before = closed([update("a", first), update("b", second)])
    after = closed([update("a", DATA)], before)
    assert [each.device for each in held_sums(after.groups[GROUP])] == ["a", "b"]
    assert np.array_equal(
        closed([update("a", first)], after).params[f"{HEAD}.weight"], before.params[f"{HEAD}.weight"]
    )


def test_features_of_a_wide_head_are_projected_and_the_head_is_of_the_networks_shape(monkeypatch) -> None:
    monkeypatch.setattr(feature_sums, "MAX_FEATURES", 320)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 640), nn.ReLU(), nn.Linear(640, 10))
    wide_map = trace_channels(module, (1, 8, 8))
    plan = TrainingPlan(objectives=(Component(name="ridge"),), local_epochs=0)
    sent = ClientUpdate("a", SubModelSpec(), {"model": {}, **train(module, DATA, plan).groups}, len(DATA))
    made = strategy(regularisation=1e-3)
    after = close_round(made, start_state(made, arrays_of(module)), [sent], wide_map).params
    values = np.maximum(TEST.inputs().reshape(len(TEST), -1) @ after["1.weight"].T + after["1.bias"], 0)
    scores = values @ after["3.weight"].T + after["3.bias"]
    assert after["3.weight"].shape == (10, 640)
    assert (scores.argmax(1) == TEST.labels).mean() > 0.9


def of_labels(data: LabelledData, labels: np.ndarray, times: int = 1) -> list[least_squares.Sums]:
    """The sums of both parts of the examples with these labels, counted several times; of 64 features."""
    values, parts, targets = features(data)[:, :64].astype(float), parts_of(data.inputs()), np.eye(10)[labels]
    return [sums_of(values[parts == part], targets[parts == part]).with_weight(times) for part in (0, 1)]


def test_flipped_labels_that_count_five_times_are_named_in_20_of_20() -> None:
    devices = split(load_source("digits").subset(range(1140)), 20)
    honest = {f"d{k}": of_labels(data, data.labels) for k, data in enumerate(devices)}
    named = []
    for liar, data in zip(honest, devices, strict=True):
        shared = {**honest, liar: of_labels(data, 9 - data.labels, times=5)}
        reads = {name: (lambda parts=parts: parts) for name, parts in shared.items()}
        named.append(least_squares.leave_one_out(reads, 1e-2)[1] == (liar,))
    assert sum(named) == 20
    reads = {name: (lambda parts=parts: parts) for name, parts in honest.items()}
    assert least_squares.leave_one_out(reads, 1e-2)[1] == ()


def times(update: ClientUpdate, factor: int) -> ClientUpdate:
    """The update of a device that counts its examples several times."""
    sent = {name: array * factor for name, array in update.groups[GROUP].items()}
    return ClientUpdate(
        update.client, update.spec, {"model": {}, GROUP: sent}, factor * update.examples, update.metrics
    )


def test_a_suspect_is_told_and_counts_like_a_usual_device_if_the_recipe_says_so() -> None:
    devices = split(DATA, 12)
    flipped = replace(devices[3], labels=9 - devices[3].labels)
    updates = [update(f"d{k}", data) for k, data in enumerate(devices)]
    lying = [*updates[:3], times(update("d3", flipped), 5), *updates[4:]]
    plain, capped = (closed(lying, harmful=harmful) for harmful in ("name", "cap"))
    for state in (plain, capped):
        assert set(state.observed["suspects"]) == {"d3"}
        assert state.observed["costs"]["d3"] > 10 * abs(state.observed["costs"]["d0"])
    assert "look at its labels (its sums count in full)" in plain.observed["suspects"]["d3"]
    assert "(its sums count 20%)" in capped.observed["suspects"]["d3"]
    honest = closed(updates)
    assert honest.observed["suspects"] == {}
    assert accuracy(plain.params) < accuracy(capped.params) - 0.03
    assert accuracy(capped.params) > accuracy(honest.params) - 0.02


def test_new_classes_and_devices_add_their_sums_to_those_of_an_earlier_run() -> None:
    known, new = (DATA.subset(np.flatnonzero(kept)) for kept in (DATA.labels < 8, DATA.labels >= 8))
    few = replace(known, class_names=known.class_names[:8])
    module = build_model(SPEC.model_copy(update={"num_classes": 8}), seed=1)
    trunk = arrays_of(MODULE)
    module.load_state_dict(
        {name: torch.from_numpy(array[:8] if HEAD in name else array) for name, array in trunk.items()}
    )
    earlier_map = trace_channels(module, SPEC.input_shape)
    plan = TrainingPlan(objectives=(Component(name="ridge"),), local_epochs=0)
    sent = ClientUpdate("a", FULL, {"model": {}, **train(module, few, plan).groups}, len(few))
    made = strategy()
    earlier = close_round(made, start_state(made, arrays_of(module)), [sent], earlier_map).groups[GROUP]
    (rule,) = made.groups
    begun = rule.continue_sums(earlier, (*range(8), None, None), trunk, MAP)
    before = start_state(made, begun.params)
    before = replace(before, groups={GROUP: begun.held})
    assert accuracy(begun.params) == pytest.approx(0.75, abs=0.08)
    after = closed([update("b", new)], before)
    together = closed([update("a", known), update("b", new)])
    assert np.array_equal(after.params[f"{HEAD}.weight"], together.params[f"{HEAD}.weight"])
    assert accuracy(after.params) > 0.9
    with_means = strategy("class-means").groups[0].continue_sums(earlier, None, trunk, MAP)
    assert (with_means.held, with_means.params) == ({}, trunk)


def test_sums_of_more_examples_than_a_device_is_believed_to_have_count_less() -> None:
    first, second = split(DATA, 2)
    honest = closed([update("a", first), update("b", second)])
    boasting = times(update("b", second), 8)
    believed = ClientUpdate("b", FULL, boasting.groups, len(second))
    assert np.array_equal(
        closed([update("a", first), believed]).params[f"{HEAD}.weight"], honest.params[f"{HEAD}.weight"]
    )


def check(sent: dict, examples: int) -> None:
    RidgeHead().check(sent, examples)


def test_sums_of_other_examples_than_stated_are_refused() -> None:
    with pytest.raises(PeerError, match="the sums are of 600 examples, the update of 601"):
        check(sums(DATA)[GROUP], 601)


@pytest.mark.parametrize("array", ["gram", "targets"])
def test_sums_that_no_features_have_are_refused(array: str) -> None:
    sent = dict(sums(DATA)[GROUP])
    check(sent, 600)
    changed = sent[f"{HEAD}/{array}"].copy()
    changed.reshape(2, -1)[0, 1] += 1e6
    with pytest.raises(PeerError, match="exceed their squares"):
        check({**sent, f"{HEAD}/{array}": changed}, 600)


def test_what_a_regression_sums_is_not_scaled() -> None:
    # y = 2 x + 1 to the last bit where nothing is penalised: scores of numbers are the numbers.
    x = np.linspace(-1, 1, 50)[:, None]
    part = sums_of(x, 2 * x + 1)
    head = RidgeHead(regularisation=1e-12).solve([part, part], bias=True)
    assert head.weight.item() == pytest.approx(2)
    assert head.offset.item() == pytest.approx(1)


def test_in_a_first_round_heads_are_solved_and_later_rounds_train() -> None:
    spec = StrategySpec(first_round=Component(name="ridge"), objectives=(Component(name="prox"),))
    assert [each.name for each in spec.objectives] == ["prox", "ridge"]
    assert StrategySpec.model_validate(spec.model_dump(by_alias=True)) == spec
    made = make_strategy(spec, (0.5, 0.0), rounds=3)
    state = start_state(made, arrays_of(MODULE))
    assert not cut(made, state, NETWORK, 0.0).train
    state = close_round(made, state, [update("a", DATA)], MAP)
    assert accuracy(state.params) > 0.9
    assert state.groups[GROUP] == {}
    later = cut(made, state, NETWORK, 0.0)
    assert later.train
    assert [objective.name for objective in later.objectives] == ["prox"]


def test_no_device_without_examples_sends_sums() -> None:
    assert sums(DATA.subset([])) == {}
    assert OBJECTIVES["ridge"].sums
