"""Updates of a round, processed one at a time instead of held in memory."""

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
from edge_server.strategy.closing import close_round
from edge_server.strategy.components import make_strategy
from schemas.strategy import Component, StrategySpec
from schemas.submodel import SubModelSpec
from schemas.tensors.files import FileGroups
from tests.edge_server.strategy.network import MAP, RATIOS, arrays, state, update
from tests.groups import encode_groups


def spooled(tmp_path, source: ClientUpdate) -> ClientUpdate:
    path = tmp_path / source.client
    path.write_bytes(encode_groups(source.groups))
    return ClientUpdate(source.client, source.spec, FileGroups(path), source.examples, source.metrics)


@pytest.mark.parametrize("combiner", ["mean", "median", "krum", "overlap-mean"])
@pytest.mark.parametrize("weighting", ["examples", "igfl-self", "igfl-time"])
def test_a_round_streamed_from_disk_equals_a_round_from_memory(tmp_path, combiner, weighting):
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
    kept = close_round(strategy, state(), sent, MAP)
    streamed = close_round(strategy, state(), [spooled(tmp_path, source) for source in sent], MAP)
    assert all((kept.params[name] == streamed.params[name]).all() for name in kept.params)
    assert kept.observed == streamed.observed


def test_updates_are_created_once_and_on_demand():
    made = []

    def make(source: ClientUpdate) -> GlobalUpdate:
        made.append(source.client)
        return to_global(source, MAP)

    updates = RoundUpdates([update("a", arrays(1)), update("b", arrays(2))], make)
    assert [source.client for source in sources_of(updates)] == ["a", "b"]
    assert len(updates) == 2
    assert not made
    assert [global_update.source.client for global_update in updates] == ["a", "b"]
    assert [global_update.source.client for global_update in updates[1:]] == ["b"]
    assert updates[-1].source.client == "b"
    assert made == ["a", "b"]


def test_layers_missing_from_an_update_are_not_covered():
    sent = ClientUpdate("a", SubModelSpec(), {"model": {"out.bias": np.ones(2, np.float32)}}, 1)
    global_update = to_global(sent, MAP)
    assert global_update.delta["out.bias"].tolist() == [1, 1]
    assert global_update.coverage["out.bias"].all()
    assert not any(global_update.coverage[name].any() for name in MAP.parameters if name != "out.bias")
    assert not any(global_update.delta[name].any() for name in MAP.parameters if name != "out.bias")


def test_a_group_sent_with_the_model_is_mapped_to_its_channels():
    spec = SubModelSpec(kept={"hidden": (1, 3)})
    control = {"hidden.bias": np.array([5.0, 7.0], np.float32), "counts": np.ones(3, np.float32)}
    sent = update("a", arrays(1), spec=spec, control=control)
    plain = to_global(sent, MAP)
    values, _ = group_to_global(plain, "control", MAP)
    assert values.keys() == {"hidden.bias"}
    assert values["hidden.bias"].tolist() == [0, 5, 0, 7, 0]
    assert group_to_global(plain, "nothing", MAP) == ({}, {})
