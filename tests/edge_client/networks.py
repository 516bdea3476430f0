"""Small networks for the pruning tests: one parametrised network that combines the features of real ones."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from schemas.submodel import ChannelMap, SubModelSpec

INPUT = (3, 8, 8)


class Net(nn.Module):
    """Layers by name, and a forward method given as a function of (net, inputs)."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **layers: Any) -> None:
        super().__init__()
        self._forward = forward
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, inputs: Tensor) -> Tensor:
        return self._forward(self, inputs)


@dataclass(frozen=True)
class Recipe:
    """Which features a `SmallNet` has; `norm` is none, batch or group; `head` is flatten, view or mean."""

    width: int = 8
    norm: str = "batch"
    depthwise: bool = False
    residual: bool = False
    concat: bool = False
    squeeze: bool = False
    head: str = "flatten"


class SmallNet(nn.Module):
    """A stem, the recipe's features in sequence, and a linear layer with 5 classes."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__()
        self.recipe, width = recipe, recipe.width
        self.stem = nn.Conv2d(3, width, 3, padding=1)
        self.norm = _norm(recipe.norm, width)
        self.depthwise = nn.Conv2d(width, width, 3, padding=1, groups=width)
        self.inner = nn.Conv2d(width, width + 2, 1)
        self.inner_norm = nn.BatchNorm2d(width + 2)
        self.outer = nn.Conv2d(width + 2, width, 1)
        self.down = nn.Linear(width, 3)
        self.up = nn.Linear(3, width)
        self.branch = nn.Conv2d(3, 6, 3, padding=1)
        outputs = width + (6 if recipe.concat else 0)
        self.linear = nn.Linear(outputs * (1 if recipe.head == "mean" else 16), 7)
        self.classes = nn.Linear(7, 5)

    def forward(self, image: Tensor) -> Tensor:
        x = torch.relu(self.norm(self.stem(image)))
        if self.recipe.depthwise:
            x = functional.relu6(self.depthwise(x))
        if self.recipe.residual:
            x = x + self.outer(torch.relu(self.inner_norm(self.inner(x))))
        if self.recipe.squeeze:
            count, channels, _, _ = x.size()
            gate = functional.adaptive_avg_pool2d(x, 1).view(count, channels)
            gate = torch.sigmoid(self.up(torch.relu(self.down(gate)))).view(count, channels, 1, 1)
            x = x * gate.expand_as(x)
        if self.recipe.concat:
            x = torch.cat([x, torch.relu(self.branch(image))], 1)
        return self.classes(torch.relu(self.linear(self._flat(functional.max_pool2d(x, 2)))))

    def _flat(self, x: Tensor) -> Tensor:
        if self.recipe.head == "mean":
            return x.mean((2, 3))
        return x.view(x.size(0), -1) if self.recipe.head == "view" else torch.flatten(x, 1)


def small_net(recipe: Recipe, seed: int) -> nn.Module:
    """A `SmallNet` in evaluation mode, with weights and statistics that are nowhere zero or one."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(seed)
    module = SmallNet(recipe).eval()
    for name, tensor in module.state_dict().items():
        if tensor.is_floating_point():
            spread = torch.rand(tensor.shape, generator=generator)
            tensor.copy_(spread + 0.5 if "norm" in name else spread - 0.5)
    return module.double()


def images(seed: int) -> Tensor:
    """Four random images."""
    return torch.rand(4, *INPUT, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5


def random_spec(channel_map: ChannelMap, seed: int) -> SubModelSpec:
    """For each group: left out, a prefix, or a random choice of blocks in random order."""
    random = np.random.default_rng(seed)
    kept: dict[str, int | tuple[int, ...]] = {}
    for name, group in channel_map.groups.items():
        blocks = group.channels // group.multiple
        count = int(random.integers(1, blocks + 1))
        chosen = random.permutation(blocks)[:count, None] * group.multiple + np.arange(group.multiple)
        choice = random.integers(3)
        if choice:
            kept[name] = count * group.multiple if choice == 1 else tuple(chosen.ravel().tolist())
    return SubModelSpec(kept=kept)


def _norm(kind: str, width: int) -> nn.Module:
    return {"none": nn.Identity(), "batch": nn.BatchNorm2d(width), "group": nn.GroupNorm(width // 2, width)}[
        kind
    ]


def conv1d(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A network for signals of shape [channels, time steps]."""
    channels, steps = input_shape
    return nn.Sequential(
        nn.Conv1d(channels, 6, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(6 * steps, num_classes)
    )
