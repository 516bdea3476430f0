"""Arrays that train in a moment."""

from typing import Any

import numpy as np
from torch import nn

Y = np.arange(60) % 2
X = (np.random.default_rng(0).normal(size=(60, 6)) + 2 * Y[:, None]).astype(np.float32)
SMALL: dict[str, Any] = {"num_clients": 2, "rounds": 2, "batch_size": 10, "workers": 1, "export": False}


def net(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network of a module, as a command names it."""
    return nn.Sequential(nn.Linear(*input_shape, 8), nn.ReLU(), nn.Linear(8, num_classes))


class Net(nn.Module):
    """A network of a class of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, x: Any) -> Any:
        return self.out(self.hidden(x).relu())
