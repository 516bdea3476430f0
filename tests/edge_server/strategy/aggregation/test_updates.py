"""A round's updates, one at a time: nothing is lost by not keeping them."""

import numpy as np
import pytest

from edge_server.strategy.aggregation.updates import (
    ClientUpdate,
    GlobalUpdate,
    RoundUpdates,
    group_to_global,
    sources_of,
    to_global,
)
from edge_server.strategy.build import make_strategy
from edge_server.strategy.strategy import close
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from schemas.tensors.blobs import FileGroups
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update
from tests.groups import encode_groups


def spooled(tmp_path, one: ClientUpdate) -> ClientUpdate:
    path = tmp_path / one.client
    path.write_bytes(encode_groups(one.groups))
    return ClientUpdate(one.client, one.spec, FileGroups(path), one.examples, one.metrics)


@pytest.mark.parametrize("combiner", ["mean", "median", "krum", "overlap-mean"])
@pytest.mark.parametrize("weighting", ["examples", "igfl-self", "igfl-time"])
def test_a_round_from_disk_one_at_a_time_is_the_round_from_memory(tmp_path, combiner, weighting):
    strategy = make_strategy(
        StrategySpec(
            combiner=Component(name=combiner),
            weighting=Component(name=weighting),
            selection=Component(name="attention"),
            transforms=(Component(name="fill-with-global"),),
        ),
        RATIOS,
    )
    specs = (SubModelSpec(), SubModelSpec(kept={"hidden": 2}), SubModelSpec(kept={"hidden": (4, 0)}))
    sent = [update(f"c{k}", arrays(k), spec=specs[k % 3], examples=k + 1) for k in range(7)]
    kept = close(strategy, state(), sent, MAP)
    streamed = close(strategy, state(), [spooled(tmp_path, one) for one in sent], MAP)
    assert all((kept.params[name] == streamed.params[name]).all() for name in kept.params)
    assert kept.observed == streamed.observed


def test_updates_are_made_once_when_they_are_asked_for():
    made = []

    def make(source: ClientUpdate) -> GlobalUpdate:
        made.append(source.client)
        return to_global(source, MAP)

    updates = RoundUpdates([update("a", arrays(1)), update("b", arrays(2))], make)
    assert [source.client for source in sources_of(updates)] == ["a", "b"]
    assert len(updates) == 2
    assert not made
    assert [one.source.client for one in updates] == ["a", "b"]
    assert [one.source.client for one in updates[1:]] == ["b"]
    assert updates[-1].source.client == "b"
    assert made == ["a", "b"]


def test_layers_that_did_not_come_back_are_not_held():
    sent = ClientUpdate("a", SubModelSpec(), {"model": {"out.bias": np.ones(2, np.float32)}}, 1)
    one = to_global(sent, MAP)
    assert one.delta["out.bias"].tolist() == [1, 1]
    assert one.coverage["out.bias"].all()
    assert not any(one.coverage[name].any() for name in MAP.parameters if name != "out.bias")
    assert not any(one.delta[name].any() for name in MAP.parameters if name != "out.bias")


def test_a_group_beside_the_model_is_put_where_its_channels_are():
    # The sub-model holds channels 1 and 3; the update's channels were then put in the order 4, 3, 2, 1, 0, so
    # channel 1 stands at place 3 and channel 3 at place 1.
    spec = SubModelSpec(kept={"hidden": (1, 3)})
    control = {"hidden.bias": np.array([5.0, 7.0], np.float32), "counts": np.ones(3, np.float32)}
    sent = update("a", arrays(1), spec=spec, control=control)
    plain = to_global(sent, MAP)
    values, coverage = group_to_global(plain, "control", MAP)
    assert values.keys() == {"hidden.bias"}
    assert values["hidden.bias"].tolist() == [0, 5, 0, 7, 0]
    moved = GlobalUpdate(sent, plain.delta, plain.coverage, plain.held, order={"hidden": (4, 3, 2, 1, 0)})
    values, coverage = group_to_global(moved, "control", MAP)
    assert values["hidden.bias"].tolist() == [0, 7, 0, 5, 0]
    assert coverage["hidden.bias"].tolist() == [False, True, False, True, False]
    assert group_to_global(plain, "nothing", MAP) == ({}, {})
