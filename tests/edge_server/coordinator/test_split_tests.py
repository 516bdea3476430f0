"""Tests of a model by features give its figures, run frozen layers once, and leave the model as it was."""

import numpy as np
import pytest
from torch import Tensor

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.models import frozen_part
from edge_client.models.build import build_model
from edge_client.models.frozen_part import SplitNetwork
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_server.coordinator.global_model import GlobalModel
from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Array
from schemas.values import ModelSpec

SPEC = ModelSpec(name="cnn-batch", input_shape=(1, 8, 8), num_classes=3)
HEAD = frozenset({"linear3.weight", "linear3.bias"})
TIERS = {0: SubModelSpec(), 1: SubModelSpec(kept={"conv1": (0, 2, 3)})}


def model(still: frozenset[str]) -> tuple[GlobalModel, dict[str, Array]]:
    module = build_model(SPEC, seed=1)
    arrays = {name: np.array(array) for name, array in arrays_of(module).items()}
    return GlobalModel(module, SPEC, trace_channels(module, (1, 8, 8)), still=still), arrays


def examples() -> LabelledData:
    rng = np.random.default_rng(0)
    return make_labelled_data(rng.random((30, 1, 8, 8), np.float32), rng.integers(0, 3, 30))


def test_figures_are_those_of_the_whole_network_and_frozen_layers_run_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain, arrays = model(frozenset())
    still = frozenset(arrays) - HEAD
    tested, _ = model(still)
    passed, data = list[int](), examples()
    own = SplitNetwork.features

    def features(split: SplitNetwork, inputs: Tensor) -> Tensor:
        passed.append(len(inputs))
        return own(split, inputs)

    monkeypatch.setattr(SplitNetwork, "features", features)
    given = data.inputs()
    for step in range(3):
        # As after a round: other trained arrays, the same frozen ones.
        arrays = {name: array + step if name in HEAD else array.copy() for name, array in arrays.items()}
        before = {name: array.copy() for name, array in arrays.items()}
        wanted = plain.test_all(TIERS, dict.fromkeys(TIERS, arrays).__getitem__, data, given)
        found = tested.test_all(TIERS, dict.fromkeys(TIERS, arrays).__getitem__, data, given)
        for tier in TIERS:
            assert found[tier].loss == pytest.approx(wanted[tier].loss, rel=1e-4)
            assert found[tier].accuracy == wanted[tier].accuracy
        assert all(np.array_equal(arrays[name], before[name]) for name in arrays)
    assert passed.count(len(data)) == len(TIERS)


def test_the_split_is_searched_once_for_all_data(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, arrays = model(frozenset())
    tested, _ = model(frozenset(arrays) - HEAD)
    searched, search = list[frozen_part._Search](), frozen_part._Search.find

    def find(one: frozen_part._Search) -> SplitNetwork:
        searched.append(one)
        return search(one)

    monkeypatch.setattr(frozen_part._Search, "find", find)
    data = examples()
    parts = (data, data.subset(range(7)))
    for _ in range(2):
        arrays = {name: array + 1 if name in HEAD else array for name, array in arrays.items()}
        for part in parts:
            wanted = plain.test(arrays, SubModelSpec(), part).loss
            assert tested.test(arrays, SubModelSpec(), part).loss == pytest.approx(wanted, rel=1e-4)
    assert len(searched) == 1


def test_other_frozen_arrays_make_other_features() -> None:
    tested, arrays = model(frozenset(arrays_of(build_model(SPEC, seed=1))) - HEAD)
    plain, _ = model(frozenset())
    data, given = examples(), examples().inputs()
    tested.test_all(TIERS, lambda _: arrays, data, given)
    other = {name: array * np.float32(0.5) for name, array in arrays.items()}
    wanted = plain.test_all(TIERS, lambda _: other, data, given)
    assert tested.test_all(TIERS, lambda _: other, data, given)[0].loss == pytest.approx(
        wanted[0].loss, rel=1e-4
    )
