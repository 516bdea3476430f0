"""Static batch normalisation on a device: one pass measures each layer's inputs, and changes nothing."""

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData, make_labelled_data
from edge_client.pruning.surgery import arrays_of
from edge_client.training.loop import train
from schemas.strategy import Component, TrainingPlan

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
