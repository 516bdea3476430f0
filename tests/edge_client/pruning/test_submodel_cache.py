"""A cached sub-model is in the state of a new one."""

import torch
from torch import nn

from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.slicing import extract
from edge_client.pruning.submodel_cache import SubModelCache
from edge_client.pruning.surgery import arrays_of
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec

MODEL = ModelSpec(name="mlp", input_shape=(1, 4, 4), num_classes=3)
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
