"""The block whose step graph measures a board's speed with onnxruntime, as a network that can be drawn."""

import torch
from torch import Tensor, nn

from edge_client.training.device_speed import CHANNELS, CLASSES, SIDE

INPUT_SHAPE = (CHANNELS, SIDE, SIDE)


class ReferenceBlock(nn.Module):
    """The block of `edge_client.training.device_speed`.

    Its first parameter scales the inputs, so that a step computes their gradients, as within a network.
    """

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(CHANNELS, 1, 1))
        self.block = nn.Sequential(
            nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False),
            nn.BatchNorm2d(CHANNELS),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(CHANNELS * SIDE * SIDE, CLASSES),
        )

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.block(inputs * self.scale)
        return logits
