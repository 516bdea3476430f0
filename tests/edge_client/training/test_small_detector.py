"""Training of a detector: with features of a frozen trunk, and in parts of a batch."""

import copy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.models.detector import Detector
from edge_client.models.frozen_part import find_split
from edge_client.training.evaluation import Features, evaluate
from edge_client.training.loop import train
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.torch_trainer import TorchTrainer
from schemas.messages.tasks import FEATURES
from schemas.strategy import TrainingPlan
from tests.edge_client.data.tasks.examples import examples
from tests.edge_client.training.step_graphs.running.test_trainer import TorchFreeBench, groups_of, trained
from tests.step_graphs.parity import relative

PLAN = TrainingPlan(optimizer="adam", learning_rate=0.003, batch_size=8, local_epochs=20, seed=1)
DATA = examples("detection", 48)


def patches(input_shape: tuple[int, ...], _: int) -> nn.Module:
    """A trunk that sees patches of four pixels."""
    return nn.Sequential(nn.Conv2d(input_shape[0], 16, 4, stride=4), nn.ReLU())


def detector() -> nn.Module:
    torch.manual_seed(0)
    return Detector(patches(DATA.input_shape, 0), DATA.input_shape, DATA.num_classes)


def test_a_detector_learns_the_same_from_features_of_its_frozen_trunk() -> None:
    whole, behind = (detector() for _ in range(2))
    state = (*whole.named_parameters(), *whole.named_buffers())
    trained = [name for name, _ in state if not name.startswith("trunk.")]
    split = find_split(behind, trained, DATA.input_shape)
    rows = split.features(torch.from_numpy(DATA.inputs())).numpy()
    features = Features(split.rest, rows, split)
    first = PLAN.model_copy(update={"optimizer": "sgd", "learning_rate": 0.01, "local_epochs": 1})
    train(whole, DATA, first, trained=trained)
    train(behind, DATA, first, trained=trained, features=features)
    for name, tensor in whole.state_dict().items():
        torch.testing.assert_close(behind.state_dict()[name], tensor, rtol=1e-3, atol=1e-5, msg=name)
    before = evaluate(behind, DATA, features=features)
    assert before.loss is not None
    np.testing.assert_allclose(before.loss, evaluate(whole, DATA).loss, rtol=1e-3)
    train(behind, DATA, PLAN, trained=trained, features=features)
    after = evaluate(behind, DATA, features=features).metrics
    assert before.metrics["map50"] < 0.1
    assert after["map50"] >= 0.9


def test_parts_of_a_batch_have_the_gradient_of_the_whole() -> None:
    whole = detector()
    for part in whole.modules():
        if isinstance(part, nn.BatchNorm2d):
            # Statistics of a part are others, in any network.
            part.eval()
            part.train = lambda mode=True, part=part: part  # type: ignore[method-assign, misc]
    parts = copy.deepcopy(whole)
    plan = PLAN.model_copy(update={"local_epochs": 1, "optimizer": "sgd"})
    train(whole, DATA, plan)
    train(parts, DATA, plan, micro_batch=3)
    for name, tensor in whole.named_parameters():
        torch.testing.assert_close(parts.get_parameter(name), tensor, rtol=1e-4, atol=1e-6, msg=name)


@pytest.mark.parametrize("part", ["all", "head"])
def test_a_detector_is_trained_without_torch_as_torch_does(tmp_path: Path, part: str) -> None:
    np.savez(tmp_path / "squares.npz", images=DATA.images, labels=DATA.labels)
    name, source = f"{__name__}:patches", f"data.source=npz:{tmp_path}/squares.npz"
    model = (source, f"model.name=detector:{name}", "model.task=detection", f"training.train={part}")
    bench = TorchFreeBench(tmp_path, "fedavg", *model, "local-epochs=1", "learning-rate=0.01")
    data = LocalData(*holdout(DATA.subset(range(24)), seed=0))
    tasks = bench.tasks(1, 1)
    assert tasks.keys() == set(bench.places)
    for device, task in tasks.items():
        assert (FEATURES in task.blobs) == (part == "head")
        place = replace(bench.places[device], data=data, model_code=frozenset({name}))
        ours, theirs = (trained(task, place, kind) for kind in (OnnxTrainer(threads=1), TorchTrainer()))
        assert ours.metrics.train_loss == pytest.approx(theirs.metrics.train_loss, rel=1e-4)
        # Rounding decides of units whose input is nearly 0: of all arrays together it makes less than 5e-5.
        mine, other = (groups_of(place, update)["model"] for update in (ours, theirs))
        assert relative(mine, other) < 1e-3
