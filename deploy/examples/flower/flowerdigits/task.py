"""The model, its data and its training loop, as in Flower's PyTorch quickstart."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional


class Net(nn.Module):
    """A small convolutional network for 8x8 images."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 3, padding=1)
        self.norm1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 16, 3, padding=1)
        self.fc = nn.Linear(16 * 2 * 2, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.max_pool2d(functional.relu(self.norm1(self.conv1(x))), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2)
        return self.fc(torch.flatten(x, 1))


def load_data(path: str, partition_id: int, num_partitions: int):
    """This node's images and labels: four fifths to train on, a fifth to evaluate on."""
    file = np.load(path)
    images = torch.from_numpy(file["images"].astype(np.float32)).reshape(-1, 1, 8, 8)
    images = (images / 16.0 - 0.3053) / 0.3760
    labels = torch.from_numpy(file["labels"].astype(np.int64))
    mine = torch.arange(len(labels)) % num_partitions == partition_id
    images, labels = images[mine], labels[mine]
    held_out = torch.arange(len(labels)) % 5 == 4
    return (images[~held_out], labels[~held_out]), (images[held_out], labels[held_out])


def train(net: nn.Module, data, epochs: int, batch_size: int, lr: float) -> float:
    """Train in place; the mean loss of the last epoch."""
    images, labels = data
    optimizer = torch.optim.Adam(net.parameters(), lr=lr)
    net.train()
    for _ in range(epochs):
        total = 0.0
        for batch in torch.split(torch.randperm(len(labels)), batch_size):
            optimizer.zero_grad()
            loss = functional.cross_entropy(net(images[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
    return total / len(labels)


@torch.no_grad()
def test(net: nn.Module, data) -> tuple[float, float]:
    """Loss and accuracy."""
    images, labels = data
    net.eval()
    outputs = net(images)
    accuracy = (outputs.argmax(1) == labels).float().mean().item()
    return functional.cross_entropy(outputs, labels).item(), accuracy
