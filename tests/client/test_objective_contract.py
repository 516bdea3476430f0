"""One contract for every local objective: finite, repeatable, and the network is plain again afterwards."""

from __future__ import annotations

import numpy as np
import pytest

from edge_client.data.labelled import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.objectives.registry import OBJECTIVES, build_objectives
from edge_client.surgery import arrays_of
from edge_client.training import TrainingResult, train
from schemas.blobs import Groups
from schemas.strategy import Piece, TrainingPlan
from schemas.values import ModelSpec

OPTIONS: dict[str, dict[str, object]] = {"attentive": {"layers": ("conv2",)}}
"""Options of the objectives that have no default for one of theirs."""
SPEC = ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=10)


def digits(count: int = 20) -> LabelledData:
    return load_source("digits").subset(range(count))


def plan(name: str, **more) -> TrainingPlan:
    piece = Piece(name=name, options=OPTIONS.get(name, {}))
    return TrainingPlan(objectives=(piece,), batch_size=8, seed=3, participants=4, **more)


def trained(
    name: str, data: LabelledData, received: Groups | None = None, kept: Groups | None = None, **more
):
    module = build_model(SPEC, seed=1)
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())
    names = arrays_of(module).keys()
    result = train(module, data, plan(name, **more), received=received, kept=kept)
    after = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())
    assert after == hooks
    assert arrays_of(module).keys() == names
    return arrays_of(module), result


def twice(name: str) -> tuple[dict[str, np.ndarray], TrainingResult, TrainingResult]:
    """Two rounds, the second with what the first kept and with what it sent sent back."""
    arrays, first = trained(name, digits())
    received = {group: first.groups[group] for group in OBJECTIVES[name].receives if group in first.groups}
    arrays, second = trained(name, digits(), received=received, kept=first.kept)
    return arrays, first, second


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_rounds_are_finite_and_leave_the_network_as_plain_as_it_was(name):
    arrays, first, second = twice(name)
    assert all(np.isfinite(array).all() for array in arrays.values())
    for result in (first, second):
        groups = [*result.groups.values(), *result.kept.values()]
        assert all(np.isfinite(array).all() for group in groups for array in group.values())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_same_seed_gives_the_same_weights_and_groups(name):
    (one, _, first), (two, _, second) = twice(name), twice(name)
    assert all(np.array_equal(one[n], two[n]) for n in one)
    assert first.groups.keys() == second.groups.keys()
    for group in first.groups:
        assert all(np.array_equal(array, second.groups[group][n]) for n, array in first.groups[group].items())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_says_which_groups_it_sends(name):
    _, first, second = twice(name)
    assert first.groups.keys() | second.groups.keys() <= OBJECTIVES[name].sends
    (objective,) = build_objectives(plan(name).objectives)
    assert objective.sends == OBJECTIVES[name].sends


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_it_sends_is_float32_as_the_firewall_asks(name):
    _, first, second = twice(name)
    for result in (first, second):
        for arrays in result.groups.values():
            assert {array.dtype for array in arrays.values()} <= {np.dtype(np.float32)}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("epochs", [0, 1])
def test_a_device_without_examples_is_at_ease(name, epochs):
    before = arrays_of(build_model(SPEC, seed=1))
    arrays, result = trained(name, digits(0), local_epochs=epochs)
    assert result.metrics.steps == 0
    assert all(np.array_equal(array, before[n]) for n, array in arrays.items())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_look_without_epochs_changes_no_weight(name):
    before = arrays_of(build_model(SPEC, seed=1))
    arrays, _ = trained(name, digits(), local_epochs=0)
    assert all(np.array_equal(array, before[n]) for n, array in arrays.items())
