"""A cached sub-model is in the state of a new one."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.models.build import build_model
from edge_client.models.fixed_state import drawn_state
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.index_sets import extract
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.pruning.surgery import arrays_of
from edge_client.training import loop
from schemas.errors import PeerError
from schemas.strategy import TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec, Preprocessing
from tests.other_networks import NAME

MODEL = ModelSpec(name="mlp", input_shape=(1, 4, 4), num_classes=3)
DATA = LabelledData(
    np.random.default_rng(0).random((12, 1, 4, 4), np.float32),
    np.arange(12) % 3,
    tuple("abc"),
    Preprocessing(),
)
WHOLE, HALF = SubModelSpec(), SubModelSpec(kept={"linear1": 100})


def borrow(models: SubModelCache, spec: SubModelSpec, seed: int = 0) -> nn.Module:
    module = build_model(MODEL, seed=seed)
    channel_map = trace_channels(module, MODEL.input_shape)
    return models.get(MODEL, spec, channel_map, extract(arrays_of(module), spec, channel_map))


def test_a_cached_network_is_reused_with_the_new_weights():
    models = SubModelCache(limit=2)
    first = borrow(models, WHOLE)
    first(torch.ones(1, 1, 4, 4)).sum().backward()
    with torch.no_grad():
        next(first.parameters()).zero_()
    again = borrow(models, WHOLE, seed=1)
    assert again is first
    assert all(parameter.grad is None for parameter in again.parameters())
    fresh = arrays_of(build_model(MODEL, seed=1))
    assert all((array == fresh[name]).all() for name, array in arrays_of(again).items())


def test_the_cache_is_limited():
    models = SubModelCache(limit=1)
    first = borrow(models, WHOLE)
    other = borrow(models, HALF)
    assert arrays_of(other)["linear1.bias"].shape == (100,)
    assert borrow(models, HALF) is other
    assert borrow(models, WHOLE) is not first


def test_normalisation_counters_are_reset():
    spec = ModelSpec(
        name="tests.edge_client.pruning.test_submodel_cache:counting", input_shape=(1, 4, 4), num_classes=3
    )
    module = build_model(spec)
    channel_map = trace_channels(module, spec.input_shape)
    models = SubModelCache()
    lent = models.get(spec, WHOLE, channel_map, arrays_of(module))
    lent(torch.ones(2, 1, 4, 4))
    assert lent[0].num_batches_tracked == 1
    assert models.get(spec, WHOLE, channel_map, arrays_of(module))[0].num_batches_tracked == 0


def counting(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(16, num_classes))


OTHERS = {
    name: ModelSpec(name=f"{NAME}:{name}", input_shape=(1, 4, 4), num_classes=3)
    for name in ("Counting", "Positions", "Generating")
}


def trained_twice(spec: ModelSpec, *, fresh: bool) -> list[dict[str, np.ndarray]]:
    """What two devices make of the same model, one after the other, in one cache or in one each."""
    whole = build_model(spec)
    channel_map, params = trace_channels(whole, spec.input_shape), arrays_of(whole)
    made, models = [], SubModelCache()
    for _ in range(2):
        models = SubModelCache() if fresh else models
        module = models.get(spec, WHOLE, channel_map, params)
        loop.train(module, DATA, TrainingPlan(batch_size=4, local_epochs=2, seed=1))
        made.append(arrays_of(module))
    return made


@pytest.mark.parametrize("name", OTHERS)
def test_a_network_that_remembers_its_last_use_is_as_a_new_one(name: str) -> None:
    expected, _ = trained_twice(OTHERS[name], fresh=True)
    for made in trained_twice(OTHERS[name], fresh=False):
        assert all(np.array_equal(array, expected[key]) for key, array in made.items())


def test_only_a_network_that_remembers_is_built_again() -> None:
    models, rebuilt = SubModelCache(limit=2), {}
    for name, spec in OTHERS.items():
        whole = build_model(spec)
        given = (spec, WHOLE, trace_channels(whole, spec.input_shape), arrays_of(whole))
        first = models.get(*given).train()
        first(torch.ones(2, 1, 4, 4))
        rebuilt[name] = models.get(*given) is not first
    assert rebuilt == {"Counting": True, "Positions": False, "Generating": True}


def test_fixed_state_is_that_of_each_task() -> None:
    spec = ModelSpec(name=f"{NAME}:Ordered", input_shape=(1, 4, 4), num_classes=3)
    models = SubModelCache()
    for seed in (1, 2):
        whole = build_model(spec, seed=seed)
        channel_map, fixed = trace_channels(whole, spec.input_shape), drawn_state(spec, whole)
        module = models.get(spec, WHOLE, channel_map, arrays_of(whole), fixed)
        inputs = torch.linspace(-1, 1, 32).reshape(2, 1, 4, 4)
        assert torch.equal(module(inputs), whole(inputs))
    with pytest.raises(PeerError, match="the server did not send 'order'"):
        models.get(spec, WHOLE, channel_map, arrays_of(whole))
