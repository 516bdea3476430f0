"""The contract of every local objective: finite, repeatable, and detached from the network at the end."""

import contextlib
from functools import cache

import numpy as np
import pytest

from edge_client.data.dataset import LabelledData
from edge_client.data.sources import load_source
from edge_client.models.build import build_model
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_client.training.checkpoints import EpochCheckpoint
from edge_client.training.loop import train
from edge_client.training.objectives.registry import OBJECTIVES, build_objectives
from edge_client.training.results import TrainingResult, TrainingStopped
from schemas.strategy import Component, TrainingPlan
from schemas.tensors.arrays import Groups
from schemas.tensors.chunks import digest_of
from schemas.values import ModelSpec
from tests.groups import encode_groups
from tests.slow import slow

OPTIONS: dict[str, dict[str, object]] = {
    "attentive": {"layers": ("conv2",)},
    "magnitude-scores": {"layers": ("linear1",)},
    "mix": {"means": 4},
    "output-energy": {"layers": ("conv2",)},
}
"""Options of objectives without a default, or with a default that has little effect."""
SPEC = ModelSpec(name="two-nn", input_shape=(1, 8, 8), num_classes=10)
CHANNELS = trace_channels(build_model(SPEC), SPEC.input_shape)


def digits(count: int = 20) -> LabelledData:
    return load_source("digits").subset(range(count))


def plan(name: str, **more) -> TrainingPlan:
    component = Component(name=name, options=OPTIONS.get(name, {}))
    return TrainingPlan(objectives=(component,), batch_size=8, seed=3, participants=4, **more)


def trained(
    name: str, data: LabelledData, received: Groups | None = None, kept: Groups | None = None, **more
):
    module = build_model(SPEC, seed=1)
    hooks = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())
    names = arrays_of(module).keys()
    result = train(module, data, plan(name, **more), received=received, kept=kept, channel_map=CHANNELS)
    after = sum(len(part._forward_hooks) + len(part._forward_pre_hooks) for part in module.modules())
    assert after == hooks
    assert arrays_of(module).keys() == names
    return arrays_of(module), result


@cache
def once(name: str) -> tuple[dict[str, np.ndarray], TrainingResult]:
    """The first round; several tests read it."""
    return trained(name, digits())


def twice(name: str) -> tuple[dict[str, np.ndarray], TrainingResult, TrainingResult]:
    """Train two rounds, the second with the groups that the first kept and sent."""
    _, first = once(name)
    received = {group: first.groups[group] for group in OBJECTIVES[name].receives if group in first.groups}
    arrays, second = trained(name, digits(), received=received, kept=first.kept)
    return arrays, first, second


@pytest.mark.parametrize("name", OBJECTIVES)
def test_two_rounds_are_finite_and_leave_the_network_plain(name):
    arrays, first, second = twice(name)
    assert all(np.isfinite(array).all() for array in arrays.values())
    for result in (first, second):
        groups = [*result.groups.values(), *result.kept.values()]
        assert all(np.isfinite(array).all() for group in groups for array in group.values())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_same_seed_gives_the_same_weights_and_groups(name):
    (arrays, first), (repeated, second) = once(name), trained(name, digits())
    assert arrays.keys() == repeated.keys()
    assert all(np.array_equal(arrays[n], repeated[n]) for n in arrays)
    assert first.groups.keys() == second.groups.keys()
    for group in first.groups:
        assert all(np.array_equal(array, second.groups[group][n]) for n, array in first.groups[group].items())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_an_objective_declares_the_groups_that_it_sends(name):
    _, first, second = twice(name)
    assert first.groups.keys() | second.groups.keys() <= OBJECTIVES[name].sends
    (objective,) = build_objectives(plan(name).objectives)
    assert objective.sends == OBJECTIVES[name].sends


@pytest.mark.parametrize("name", OBJECTIVES)
def test_sent_groups_are_float32_and_sums_float64(name):
    wanted = np.dtype(np.float64 if OBJECTIVES[name].sums else np.float32)
    _, first, second = twice(name)
    for result in (first, second):
        for arrays in result.groups.values():
            assert {array.dtype for array in arrays.values()} <= {wanted}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("epochs", [0, 1])
def test_a_device_without_examples_changes_nothing(name, epochs):
    before = arrays_of(build_model(SPEC, seed=1))
    arrays, result = trained(name, digits(0), local_epochs=epochs)
    assert result.metrics.steps == 0
    assert all(np.array_equal(array, before[n]) for n, array in arrays.items())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_round_without_epochs_changes_no_weight(name):
    before = arrays_of(build_model(SPEC, seed=1))
    arrays, _ = trained(name, digits(), local_epochs=0)
    assert all(np.array_equal(array, before[n]) for n, array in arrays.items())


def answer_digest(module, result: TrainingResult) -> str:
    """The digest of weights, groups to send and groups to keep."""
    kept = {f"kept {group}": arrays for group, arrays in result.kept.items()}
    return digest_of(encode_groups({"model": arrays_of(module), **result.groups, **kept}))


@pytest.mark.parametrize("epoch", [1, slow(3)])
@pytest.mark.parametrize("optimizer", ["sgd", slow("adam")])
@pytest.mark.parametrize("name", OBJECTIVES)
def test_killed_and_resumed_training_ends_with_the_same_bytes(name, optimizer, epoch, tmp_path):
    """Killed after epoch 1 or 3 of 3 and resumed by new objects, in a round with kept groups."""
    if OBJECTIVES[name].optimizers and optimizer not in OBJECTIVES[name].optimizers:
        pytest.skip(f"{name} supports other optimizers only")
    _, first = once(name)
    # Provide every group that the objective receives, with the network's shapes and non-zero values.
    weights = {group: {n: a * 0.1 for n, a in first.groups[group].items()} for group in first.groups}
    steps = {n: np.full_like(a, 0.01) for n, a in arrays_of(build_model(SPEC, seed=1)).items()}
    shared = {n: a > 0 for n, a in arrays_of(build_model(SPEC, seed=2)).items()}
    groups = {**weights, "last-step": steps, "overlap": shared, "widths": {}}
    received = {group: groups[group] for group in OBJECTIVES[name].receives}
    how = {"local_epochs": 3, "optimizer": optimizer}
    if optimizer == "sgd":
        how["momentum"] = 0.9

    def go(epochs: int, checkpoint: EpochCheckpoint | None) -> str:
        module, done = build_model(SPEC, seed=1), []
        result = train(
            module,
            digits(),
            plan(name, **how),
            received=received,
            kept=first.kept,
            on_epoch=done.append,
            should_stop=lambda: len(done) == epochs,
            checkpoint=checkpoint,
        )
        return answer_digest(module, result)

    def checkpoint() -> EpochCheckpoint:
        return EpochCheckpoint(tmp_path / "epochs", "", interval_s=0)

    whole = go(99, None)
    with contextlib.suppress(TrainingStopped):
        go(epoch, checkpoint())
    assert len(checkpoint().load_values()["losses"]) == epoch
    assert go(99, checkpoint()) == whole
