"""Channels are scored by their part in the outputs of the layers that read them."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.training.loop import train
from schemas.strategy import Component, TrainingPlan
from schemas.values import Preprocessing


class TwoReaders(nn.Module):
    """Two channels that a linear layer reads for both of two positions."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 1, bias=False)
        self.out = nn.Linear(4, 2)
        with torch.no_grad():
            self.conv.weight.copy_(torch.tensor([1.0, 2.0])[:, None, None])
            # The positions of the first channel, then those of the second.
            self.out.weight.copy_(torch.tensor([[3.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]))

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.out(self.conv(inputs).flatten(1))
        return outputs


def test_a_score_is_the_energy_of_a_channel_in_what_reads_it_over_the_largest() -> None:
    """Of the example (1, 3) channel 0 makes (1, 3), channel 1 (2, 6).

    Over both positions and weights the first gives 9 * 1 + 1 * 9 = 18, the second 0 * 4 + 1 * 36 = 36.
    """
    module = TwoReaders()
    data = LabelledData(
        np.array([[[1.0, 3.0]]], np.float32), np.array([0]), ("a", "b"), Preprocessing(scale=1.0)
    )
    objective = Component(name="output-energy", options={"layers": ("conv",)})
    plan = TrainingPlan(objectives=(objective,), local_epochs=0)
    result = train(module, data, plan, channel_map=trace_channels(module, (1, 2)))
    assert result.groups["attention"]["conv"].tolist() == pytest.approx([0.5, 1.0])
