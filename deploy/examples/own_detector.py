"""A detector of one's own, `own_detector:detector`, which sees patches of four pixels and their means."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from edge_client.data.tasks.detection import cells


class Detector(nn.Module):
    """From pictures [B, colours, H, W] to [B, (classes + 5) A]; boxes begin as squares around their cells."""

    def __init__(self, colours: int, classes: int, around: Tensor) -> None:
        super().__init__()
        self.see, self.say = nn.Conv2d(colours, 16, 4, stride=4), nn.Conv2d(16, classes + 5, 1)
        self.register_buffer("around", functional.pad(around, (0, 0, classes, 1)), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.relu(self.see(x))
        maps = (seen, functional.avg_pool2d(seen, 2), functional.avg_pool2d(seen, 4))
        return (torch.cat([self.say(each).flatten(2) for each in maps], 2) + self.around).flatten(1)


def detector(input_shape: tuple[int, ...], num_classes: int) -> Detector:
    """The factory, which `[model] name` states."""
    centres, strides = map(torch.from_numpy, cells(input_shape))
    return Detector(input_shape[0], num_classes, torch.cat([centres.T - strides, centres.T + strides]))
