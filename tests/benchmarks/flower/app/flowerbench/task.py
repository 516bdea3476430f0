"""The network, the data and the training, structured like Flower's PyTorch quickstart."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


class TwoNN(nn.Module):
    """`two-nn` for 28x28 grey images: 1,663,370 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
        self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
        self.linear1 = nn.Linear(64 * 7 * 7, 512)
        self.linear2 = nn.Linear(512, 10)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, 10]."""
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self.linear2(torch.relu(self.linear1(torch.flatten(x, 1))))


def large() -> nn.Module:
    """Two hidden layers, 24,971,210 parameters: for rounds without local work."""
    return nn.Sequential(
        nn.Flatten(), nn.Linear(784, 5000), nn.ReLU(), nn.Linear(5000, 4200), nn.ReLU(), nn.Linear(4200, 10)
    )


NETWORKS = {"two-nn": TwoNN, "large": large}


def load_data(folder: str, partition: int) -> tuple[Tensor, Tensor]:
    """A client's images [N, 1, 28, 28] from 0 to 1, and labels [N]."""
    with np.load(Path(folder) / f"client-{partition}.npz") as arrays:
        images = torch.from_numpy(arrays["x_train"]).float() / 255
        return images, torch.from_numpy(arrays["y_train"]).long()


def train(net: nn.Module, images: Tensor, labels: Tensor, *, epochs: int, batch: int, rate: float) -> float:
    """Plain SGD; returns the last epoch's mean loss."""
    optimizer = torch.optim.SGD(net.parameters(), lr=rate, fused=True)
    net.train()
    total = torch.zeros(())
    for _ in range(epochs):
        total = torch.zeros(())
        for chosen in torch.split(torch.randperm(len(labels)), batch):
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            total += loss.detach() * len(chosen)
    return float(total) / len(labels)
