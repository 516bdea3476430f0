"""Training of a detector: with features of a frozen trunk, and in parts of a batch."""

import copy

import numpy as np
import torch
from torch import nn

from edge_client.models.detector import Detector
from edge_client.models.frozen_part import find_split
from edge_client.training.evaluation import Features, evaluate
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from tests.edge_client.data.tasks.examples import examples

PLAN = TrainingPlan(optimizer="adam", learning_rate=0.003, batch_size=8, local_epochs=20, seed=1)
DATA = examples("detection", 48)


def detector() -> nn.Module:
    """A detector on a trunk that sees patches of four pixels."""
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Conv2d(1, 16, 4, stride=4), nn.ReLU())
    return Detector(trunk, DATA.input_shape, DATA.num_classes)


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
