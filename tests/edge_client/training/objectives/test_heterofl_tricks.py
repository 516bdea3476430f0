"""HeteroFL's scaler and masked loss."""

import numpy as np
import pytest
import torch
from torch import nn

from edge_client.pruning.surgery import compact
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from tests.edge_client.training.objectives.test_ordered_dropout import FiveChannels
from tests.edge_server.strategy.network import MAP


def set_up(name: str, module: nn.Module, **context: object) -> LocalObjective:
    (objective,) = build_objectives((Component(name=name),))
    objective.setup(module, TrainingContext(TrainingPlan(), channel_map=MAP, **context))  # type: ignore[arg-type]
    return objective


def test_the_scaler_divides_a_pruned_layers_outputs_by_the_share_of_its_channels_in_training() -> None:
    torch.manual_seed(0)
    spec = SubModelSpec(kept={"hidden": (1, 3)})
    module = compact(FiveChannels(), spec, MAP)
    inputs = torch.tensor([[1.0, 2.0]])
    hidden = torch.relu(module.hidden(inputs))
    objective = set_up("scaler", module, spec=spec)
    # 2 of 5 channels are kept: outputs are divided by 0.4.
    assert torch.allclose(module(inputs), module.out(hidden / 0.4))
    assert torch.allclose(module.eval()(inputs), module.out(hidden))
    objective.close()
    assert torch.allclose(module.train()(inputs), module.out(hidden))


def test_a_device_with_the_full_model_scales_nothing() -> None:
    module = FiveChannels()
    set_up("scaler", module)
    assert not module.hidden._forward_hooks


def test_the_masked_loss_ignores_the_outputs_of_classes_that_the_device_lacks() -> None:
    module = FiveChannels()
    objective = set_up("masked-loss", module, labels=torch.tensor([0, 2, 0]))
    outputs = torch.tensor([[1.0, 7.0, 2.0, -3.0]], requires_grad=True)
    labels = torch.tensor([2])
    loss = objective.loss(Batch(module, torch.zeros(1, 2), labels, outputs), torch.tensor(9.0))
    # The outputs of classes 1 and 3 count as 0.
    exponentials = np.exp([1.0, 0.0, 2.0, 0.0])
    assert loss.item() == pytest.approx(-np.log(exponentials[2] / exponentials.sum()), rel=1e-6)
    loss.backward()
    assert outputs.grad is not None
    assert (outputs.grad[0, [1, 3]] == 0).all()
