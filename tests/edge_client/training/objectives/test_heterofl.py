"""HeteroFL's masked loss, its scaler, and the measurement of batch statistics."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.pruning.surgery import arrays_of, compact
from edge_client.training.loop import train
from edge_client.training.objectives.base import Batch, LocalObjective, TrainingContext
from edge_client.training.objectives.registry import build_objectives
from schemas.strategy import Component, TrainingPlan
from schemas.submodel import SubModelSpec
from tests.edge_client.training.objectives.test_ordered_dropout import five_channels
from tests.edge_server.strategy.network import MAP


def set_up(name: str, module: nn.Module, **context: object) -> LocalObjective:
    (objective,) = build_objectives((Component(name=name),))
    objective.setup(module, TrainingContext(TrainingPlan(), channel_map=MAP, **context))  # type: ignore[arg-type]
    return objective


def test_the_scaler_divides_a_pruned_layers_outputs_by_the_share_of_its_channels_in_training() -> None:
    torch.manual_seed(0)
    spec = SubModelSpec(kept={"hidden": (1, 3)})
    module = compact(five_channels(), spec, MAP)
    inputs = torch.tensor([[1.0, 2.0]])
    hidden = torch.relu(module.hidden(inputs))
    objective = set_up("scaler", module, spec=spec)
    # 2 of 5 channels are kept: outputs are divided by 0.4.
    assert torch.allclose(module(inputs), module.out(hidden / 0.4))
    assert torch.allclose(module.eval()(inputs), module.out(hidden))
    objective.close()
    assert torch.allclose(module.train()(inputs), module.out(hidden))


def test_a_device_with_the_full_model_scales_nothing() -> None:
    module = five_channels()
    set_up("scaler", module)
    assert not module.hidden._forward_hooks


def test_the_masked_loss_ignores_the_outputs_of_classes_that_the_device_lacks() -> None:
    module = five_channels()
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


PASS = TrainingPlan(
    objectives=(Component(name="batch-statistics"),), batch_size=2, local_epochs=0, learning_rate=1.0
)


class TwoNorms(nn.Module):
    """Two batch normalisations in a row, and a plain output layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.BatchNorm1d(2), nn.BatchNorm1d(2, affine=False)
        self.out = nn.Linear(2, 2)
        with torch.no_grad():
            self.first.weight.copy_(torch.tensor([2.0, 3.0]))

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.out(self.second(self.first(x)))
        return outputs


def data(rows: list[list[float]]) -> LabelledData:
    return make_labelled_data(
        np.array(rows, np.float32), np.zeros(len(rows), np.int64), class_names=("a", "b")
    )


def test_statistics_are_of_all_examples_and_each_batch_is_normalised_by_its_own() -> None:
    module = TwoNorms()
    before = arrays_of(module)
    sent = train(module, data([[0, 1], [2, 1], [4, 1], [6, 9]]), PASS).groups["statistics"]
    # Values 0, 2, 4, 6 of the first channel, and 1, 1, 1, 9 of the second.
    assert sent["first.running_mean"].tolist() == [3, 3]
    assert sent["first.running_var"].tolist() == [5, 12]
    # Each batch of two leaves the first layer with mean 0; a channel of equal values leaves as 0.
    np.testing.assert_allclose(sent["second.running_mean"], [0, 0], atol=1e-6)
    assert 3.9 < sent["second.running_var"][0] <= 4
    assert module.first.training
    assert module.first.track_running_stats
    for name, array in arrays_of(module).items():
        np.testing.assert_array_equal(array, before[name])


def test_a_frozen_layer_normalises_as_it_did_and_is_not_measured() -> None:
    module = TwoNorms()
    trained = ("second.running_mean", "second.running_var", "out.weight")
    sent = train(module, data([[0, 1], [2, 1], [4, 1], [6, 9]]), PASS, trained=trained).groups["statistics"]
    assert sent.keys() == {"second.running_mean", "second.running_var"}
    # The first layer has mean 0 and variance 1 still, and multiplies by 2 and 3: 0 to 12, and 3 to 27.
    np.testing.assert_allclose(sent["second.running_mean"], [6, 9], rtol=1e-4)


def test_a_network_without_batch_normalisation_has_nothing_to_send() -> None:
    assert "statistics" not in train(nn.Linear(2, 2), data([[0, 1], [2, 1]]), PASS).groups
