"""Networks as users write them, right and wrong; named as `tests.edge_server.own_networks:FACTORY`."""

import math

import numpy as np
import torch
from torch import Tensor, nn

from edge_client.data.dataset import LabelledData, make_labelled_data

NAME = "tests.edge_server.own_networks"


def linear(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """No channels to prune."""
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(input_shape), num_classes))


def hidden(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Ten channels to prune."""
    inner = nn.Linear(math.prod(input_shape), 10)
    return nn.Sequential(nn.Flatten(), inner, nn.ReLU(), nn.Linear(10, num_classes))


def normed(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """It normalises over a batch, which must have two examples."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(math.prod(input_shape), 8), nn.BatchNorm1d(8), nn.Linear(8, num_classes)
    )


def one_output(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return linear(input_shape, 1)


def wrong_inputs(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(7, num_classes))


class Pair(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner(x), x


def pair(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Pair(linear(input_shape, num_classes))


class Served(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            raise RuntimeError("made for serving alone")
        return x


def only_served(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """It can be asked, and not be trained."""
    return nn.Sequential(linear(input_shape, num_classes), Served())


def scaled(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Its last layer is no linear one."""
    return nn.Sequential(linear(input_shape, num_classes), nn.Tanh())


class Noisy(nn.Sequential):
    """A network that adds noise in training, which no step graph repeats."""

    def forward(self, inputs: Tensor) -> Tensor:
        """The logits."""
        noise = 0.01 * torch.randn_like(inputs) if self.training else 0.0
        logits: Tensor = super().forward(inputs + noise)
        return logits


def noisy(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network for devices with torch."""
    return Noisy(*hidden(input_shape, num_classes))


def pictures() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (60, 1, 4, 4)).astype(np.uint8), np.arange(60) % 3


def four_kinds() -> tuple[np.ndarray, np.ndarray]:
    images, _ = pictures()
    return images, np.arange(60) % 4


def named_pictures() -> LabelledData:
    images, labels = pictures()
    return make_labelled_data(images, labels, class_names=("cat", "dog", "hen"))


class Recurrent(nn.Module):
    """Reads a picture row by row, which a device of every tier does with all states."""

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        self.gru = nn.GRU(columns, 4, batch_first=True)
        self.hidden, self.head = nn.Linear(4, 8), nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.gru(x[:, 0])
        return self.head(torch.relu(self.hidden(states[:, -1])))


def recurrent(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Recurrent(input_shape[-1], num_classes)


class Between(nn.Module):
    """A function between two hidden layers and the head."""

    def __init__(self, inputs: int, classes: int, function) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(inputs, 6), nn.Linear(6, 8)
        self.head, self.function = nn.Linear(8, classes), function

    def forward(self, x: Tensor) -> Tensor:
        x = self.function(torch.tanh(self.first(x.flatten(1))))
        return self.head(torch.tanh(self.second(x)))


def rolled(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Between(math.prod(input_shape), num_classes, lambda x: torch.roll(x, 1, 1))


def numbered(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    return Between(math.prod(input_shape), num_classes, lambda x: x.view(-1, 6))


def frozen(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """It learns nothing."""
    return hidden(input_shape, num_classes).requires_grad_(False)


def double(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """Its weights are of another type than inputs."""
    return hidden(input_shape, num_classes).double()


class Detached(nn.Sequential):
    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = super().forward(inputs)
        return logits.detach()


def detached(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """No gradient reaches its weights."""
    return Detached(linear(input_shape, num_classes))


def empty(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """It has no weights."""
    return nn.Sequential(nn.Flatten(), nn.AdaptiveAvgPool1d(num_classes))
