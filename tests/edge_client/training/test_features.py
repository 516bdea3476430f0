"""Training on features is training of the whole network, of which all but the rest is frozen."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.surgery import arrays_of
from edge_client.training.evaluation import Features, evaluate, features_of, split_for, why_whole
from edge_client.training.feature_cache import FeatureCache
from edge_client.training.loop import train
from edge_client.training.objectives.registry import OBJECTIVES
from edge_client.training.results import TrainingResult
from edge_client.training.step_capture import Recorder
from schemas.strategy import Component, TrainingPlan
from schemas.values import ModelSpec
from tests.edge_client.networks import Net

SPEC = ModelSpec(name="cnn-batch", input_shape=(1, 8, 8), num_classes=10)
HEAD = ("linear2.weight", "linear2.bias", "linear3.weight", "linear3.bias")
OPTIONS = {
    "attentive": {"layers": ("linear2",)},
    "magnitude-scores": {"layers": ("linear2",)},
    "prox": {"mu": 1.0},
}
NONE = FeatureCache()


def digits(count: int = 20) -> LabelledData:
    return load_source("digits").subset(range(count))


def plan(*names: str, **more) -> TrainingPlan:
    objectives = tuple(Component(name=name, options=OPTIONS.get(name, {})) for name in names)
    settings = {
        "batch_size": 8,
        "seed": 3,
        "participants": 4,
        "local_epochs": 2,
        "learning_rate": 0.05,
        **more,
    }
    return TrainingPlan(objectives=objectives, **settings)


def trained(how: TrainingPlan, *, by_features: bool, **more) -> tuple[dict[str, np.ndarray], TrainingResult]:
    module, data, features = build_model(SPEC, seed=1), digits(), None
    if by_features:
        split = split_for(module, HEAD, SPEC.input_shape, how, data)
        assert split is not None
        (features,), _ = features_of(split, (data,), NONE, "")
    result = train(module, data, how, trained=HEAD, features=features, **more)
    return arrays_of(module), result


@pytest.mark.parametrize("name", [name for name in OBJECTIVES if OBJECTIVES[name].reads_outputs_only])
def test_an_objective_that_reads_outputs_only_makes_no_difference(name):
    (arrays, result), (whole, wanted) = (trained(plan(name), by_features=given) for given in (True, False))
    assert all(np.allclose(arrays[each], whole[each], atol=1e-5) for each in whole)
    assert result.groups.keys() == wanted.groups.keys()
    for group, expected in wanted.groups.items():
        assert all(np.allclose(result.groups[group][each], expected[each], atol=1e-4) for each in expected)
    start = arrays_of(build_model(SPEC, seed=1))
    assert {each for each in start if not np.array_equal(start[each], arrays[each])} == set(HEAD)


@pytest.mark.parametrize(
    "more", [{"momentum": 0.9, "weight_decay": 0.1}, {"sam_radius": 0.05, "local_epochs": 4}]
)
def test_other_steps_train_on_features_too(more):
    (arrays, _), (whole, _) = (trained(plan(**more), by_features=given) for given in (True, False))
    assert all(np.allclose(arrays[each], whole[each], atol=1e-4) for each in whole)


def test_parts_of_batches_and_recorded_steps_train_on_features_too():
    (plain, _), (parts, _), (recorded, _) = (
        trained(plan(momentum=0.9), by_features=True, **more)
        for more in ({}, {"micro_batch": 3}, {"recorder": Recorder()})
    )
    assert all(np.allclose(plain[each], parts[each], atol=1e-5) for each in plain)
    assert all(np.array_equal(plain[each], recorded[each]) for each in plain)


def test_the_objective_that_needs_more_than_outputs_is_named():
    task = digits().learning_task
    assert why_whole(plan("prox", "mix").objectives, task) == "the objective 'mix' needs more than outputs"
    assert not why_whole(plan("prox", "scaffold").objectives, task)


def test_an_objective_that_looks_behind_a_frozen_layer_runs_all_layers(caplog):
    module, data, how = build_model(SPEC, seed=1), digits(), plan("attentive")
    (looking,) = how.objectives
    assert split_for(module, HEAD, SPEC.input_shape, how, data) is not None
    behind = looking.model_copy(update={"options": {"layers": ("linear2", "conv2")}})
    how = how.model_copy(update={"objectives": (behind,)})
    with caplog.at_level("INFO"):
        assert split_for(module, HEAD, SPEC.input_shape, how, data) is None
    assert "the objective 'attentive' needs the frozen 'conv2'" in caplog.text


def test_an_evaluation_by_features_is_that_of_the_network():
    module, data = build_model(SPEC, seed=1), digits(50)
    split = split_for(module, HEAD, SPEC.input_shape, plan(), data)
    assert split is not None
    (features,), _ = features_of(split, (data,), NONE, "")
    found, wanted = evaluate(module, data, features=features), evaluate(module, data)
    assert found.loss == pytest.approx(wanted.loss, rel=1e-4)
    assert found.metrics["accuracy"] == wanted.metrics["accuracy"]
    assert evaluate(module, digits(0), features=Features(features.rest, features.rows[:0])).examples == 0


def test_rounded_features_train_as_they_are_kept(tmp_path):
    module, data = build_model(SPEC, seed=1), digits()
    split = split_for(module, HEAD, SPEC.input_shape, plan(), data)
    assert split is not None
    caches = (FeatureCache(tmp_path, limit=10**6), FeatureCache(tmp_path, limit=10**6), NONE)
    rows = [features_of(split, (data,), cache, "", "fp16")[0][0].rows for cache in caches]
    assert np.array_equal(rows[0], rows[1])
    assert np.array_equal(rows[0], rows[2])
    exact = features_of(split, (data,), NONE, "")[0][0].rows
    assert np.array_equal(rows[0], exact.astype(np.float16).astype(np.float32))


def test_features_of_several_parts_are_in_their_order():
    module, data = build_model(SPEC, seed=1), digits(40)
    split = split_for(module, HEAD, SPEC.input_shape, plan(), data)
    assert split is not None
    parts = (data.subset(range(13)), data.subset(()), data.subset(range(13, 40)))
    (first, none, last), _ = features_of(split, parts, NONE, "")
    whole = split.features(torch.from_numpy(data.inputs())).numpy()
    assert len(none.rows) == 0
    assert np.allclose(np.concatenate([first.rows, last.rows]), whole, atol=1e-6)


def pool(net, inputs):
    """`torch.fx` cannot trace this, since it decides by the shape of what a layer gives."""
    values = net.first(inputs)
    if values.shape[-1] > 3:
        values = nn.functional.avg_pool2d(values, 2)
    return net.head(values.flatten(1))


def test_a_network_that_decides_by_shapes_trains_on_kept_features_with_the_same_bits(tmp_path):
    trained, data = [], digits()
    for cache in (FeatureCache(tmp_path, limit=10**6), FeatureCache(tmp_path, limit=10**6), NONE):
        torch.manual_seed(0)
        module = Net(pool, first=nn.Conv2d(1, 2, 3), head=nn.Linear(18, 10))
        names = ("head.weight", "head.bias")
        split = split_for(module, names, SPEC.input_shape, plan(), data)
        assert split is not None
        (features,), kept = features_of(split, (data,), cache, "")
        train(module, data, plan(), trained=names, features=features)
        trained.append((kept.computed, module.head.weight.detach().numpy()))
    assert [computed for computed, _ in trained] == [len(data), 0, len(data)]
    assert all(np.array_equal(weights, trained[0][1]) for _, weights in trained)
