"""A small network in onnxruntime and in torch; all networks in `make test-graphs`."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.models.registry import MODELS
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from edge_client.training.step_graphs.running import optimizers
from edge_client.training.step_graphs.running.arena import StepSession
from edge_client.training.step_graphs.running.loop import Training
from edge_client.training.step_graphs.running.objectives import registry
from edge_client.training.step_graphs.running.objectives.registry import DRAWN_INSIDE, Prox
from schemas.strategy import TrainingPlan
from schemas.submodel import SubModelSpec
from schemas.values import ModelSpec
from tests.slow import mark_slow
from tests.step_graphs import __main__ as command
from tests.step_graphs import cases
from tests.step_graphs.cases import plan
from tests.step_graphs.graphs import drawn
from tests.step_graphs.parity import Difference, compared, difference
from tests.step_graphs.recorded import recorded


def test_every_shipped_network_is_compared() -> None:
    pictures = {name for name, known in MODELS.items() if len(known.example_shape) == 3}
    assert {case.model for case in cases.every_case()} == pictures


@pytest.mark.parametrize("objective", [name for name in cases.OBJECTIVES if name not in DRAWN_INSIDE])
def test_objectives_take_torchs_steps(objective: str) -> None:
    found = compared(cases.Case("mlp", 1, objective))
    assert found.is_close, found


@pytest.mark.parametrize("optimizer", cases.OPTIMIZERS)
def test_optimizers_take_torchs_steps(optimizer: str) -> None:
    found = compared(cases.Case("mlp", 1, "plain", optimizer))
    assert found.is_close, found


@mark_slow
def test_convolutions_and_overlapping_pools_take_torchs_steps() -> None:
    case = cases.Case("cnn-batch", 1)
    small = cases.network(case.model, case.tier, (1, 12, 12))
    found = difference(case, small, drawn(small, ()))
    assert found.is_same, found


def test_recording_changes_nothing_of_torchs_training() -> None:
    case = cases.Case("mlp", 5, "attentive", "adam")
    found = cases.network(case.model, case.tier)
    last = recorded(case, found)[-1].after.arrays
    module = found.module()
    train(
        module,
        cases.examples(found.model.input_shape),
        plan(case),
        spec=found.spec,
        channel_map=found.channels,
    )
    assert all(np.array_equal(array, last[name]) for name, array in arrays_of(module).items())


def _with(optimizer: Callable[[TrainingPlan], Any], **changed: float) -> Callable[[TrainingPlan], Any]:
    return lambda plan: optimizer(plan.model_copy(update=changed))


class _EpsilonBeforeCorrection(optimizers.Adam):
    """Adds epsilon to the root of the mean square before its correction for the start at 0."""

    def step(self, weights: optimizers.Arrays, gradients: optimizers.Arrays) -> None:
        root = (1 - optimizers.BETAS[1] ** (self.steps + 1)) ** 0.5
        with patch.object(optimizers, "EPSILON", optimizers.EPSILON / root):
            super().step(weights, gradients)


class _StrongProx(Prox):
    """Has a mu that is 1 % too large."""

    def __init__(self, *, mu: float) -> None:
        super().__init__(mu=1.01 * mu)


WRONG_OPTIMIZERS: Mapping[str, tuple[str, Callable[[TrainingPlan], Any]]] = {
    "a rate that is 0.01 % too large": ("sgd", _with(optimizers.Sgd, learning_rate=0.01 * (1 + 1e-4))),
    "a momentum of 0.9001": ("momentum", _with(optimizers.Sgd, momentum=0.9001)),
    "no weight decay": ("momentum", _with(optimizers.Sgd, weight_decay=0.0)),
    "no decoupled weight decay": ("adamw", _with(optimizers.AdamW, weight_decay=0.0)),
    "weight decay in the gradient": ("adamw", optimizers.Adam),
    "epsilon before the correction": ("adam", _EpsilonBeforeCorrection),
}


@pytest.mark.parametrize("wrong", WRONG_OPTIMIZERS)
def test_another_optimizer_is_noticed(wrong: str) -> None:
    name, made = WRONG_OPTIMIZERS[wrong]
    case = cases.Case("mlp", 1, "plain", name)
    with patch.dict(optimizers.OPTIMIZERS, {cases.OPTIMIZERS[name].get("optimizer", "sgd"): made}):
        assert not compared(case).is_same


def test_a_larger_sam_radius_is_noticed() -> None:
    uphill = Training.uphill

    def farther(training: Training, gradients: Mapping[str, Any]) -> Any:
        training.radius *= 1.1
        return uphill(training, gradients)

    with patch.object(Training, "uphill", farther):
        assert not compared(cases.Case("mlp", 1, "plain", "momentum")).is_same


def test_a_stronger_prox_is_noticed() -> None:
    with patch.dict(registry.OBJECTIVES, {"prox": _StrongProx}):
        assert not compared(cases.Case("mlp", 1, "prox")).is_same


def test_gradients_that_onnxruntime_alone_gets_wrong_are_noticed() -> None:
    run = StepSession.run

    def wrong(session: StepSession, batch: Mapping[str, Any]) -> float:
        loss = run(session, batch)
        session.gradients["linear1.weight"] *= np.float32(1.001)
        return loss

    with patch.object(StepSession, "run", wrong):
        assert not compared(cases.Case("mlp", 1)).is_same


def test_a_missing_scaler_is_noticed() -> None:
    case = cases.Case("mlp", 1, "scaler")
    found = cases.network(case.model, case.tier)
    assert not difference(case, found, drawn(found, ())).is_same


@mark_slow
def test_running_statistics_of_another_momentum_are_noticed() -> None:
    found, case = _normalised(), cases.Case("mlp", 5)
    graphs = drawn(found, ())
    assert difference(case, found, graphs).is_close
    found.whole[1].momentum = 0.11
    assert not difference(case, found, graphs).is_same


def _normalised() -> cases.Network:
    """A whole network with a batch normalisation."""
    torch.manual_seed(0)
    whole = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, cases.CLASSES)
    )
    spec = ModelSpec(name="normalised", input_shape=(1, 8, 8), num_classes=cases.CLASSES)
    return cases.Network(spec, SubModelSpec(), trace_channels(whole, (1, 8, 8)), whole, arrays_of(whole))


def test_an_interrupted_comparison_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    taken: list[cases.Case] = []

    def instantly(case: cases.Case) -> Difference:
        taken.append(case)
        return Difference(case, *[0.0] * 7)

    monkeypatch.setattr(command, "compared", instantly)
    file = tmp_path / "found.jsonl"
    words = ["mlp/1/plain", "--out", str(file)]
    first = Difference(cases.Case("mlp", 1, "plain", "adam"), *[0.0] * 7)
    file.write_text(json.dumps(asdict(first)) + "\n")
    assert command.main(words) == 0
    assert [case.optimizer for case in taken] == ["sgd", "momentum", "adamw"]
    assert command.main(words) == 0
    assert len(taken) == 3
    capsys.readouterr()
    command.main(["--table", str(file)])
    assert "| mlp | 1 |" in capsys.readouterr().out
    assert not replace(first, exact_step=1.0).is_same
