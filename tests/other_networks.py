"""Networks as other people write them; named as `tests.other_networks:FACTORY`."""

import math
import random

import numpy as np
import torch
from torch import Tensor, nn

NAME = "tests.other_networks"


class Ordered(nn.Module):
    """Looks at its inputs in an order that `order_of` gives."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        size = math.prod(shape)
        self.hidden, self.out = nn.Linear(size, 8), nn.Linear(8, classes)
        self.keep(torch.randperm(size))

    def keep(self, order: Tensor) -> None:
        self.register_buffer("order", order)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.hidden(x.flatten(1)[:, self.order])))


class Hidden(Ordered):
    def keep(self, order: Tensor) -> None:
        self.register_buffer("order", order, persistent=False)


class Waves(nn.Module):
    """Random features in a hidden buffer of floats (Rahimi and Recht 2007)."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.register_buffer("waves", torch.randn(math.prod(shape), 8), persistent=False)
        self.out = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cos(x.flatten(1) @ self.waves))


class Switched(nn.Module):
    """Switches off half of its inputs, by truth values that numpy draws."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        size = math.prod(shape)
        self.register_buffer("on", torch.from_numpy(np.random.rand(size) < 0.5))
        self.out = nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.where(self.on, x.flatten(1), 0.0))


class Attribute(Ordered):
    def keep(self, order: Tensor) -> None:
        self.order = order


class InList(Ordered):
    def keep(self, order: Tensor) -> None:
        self.tables = [{"order": order}]

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.hidden(x.flatten(1)[:, self.tables[0]["order"]])))


class AsArray(Ordered):
    def keep(self, order: Tensor) -> None:
        self.places = np.random.permutation(len(order))

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.hidden(x.flatten(1)[:, self.places])))


class InClosure(Ordered):
    def keep(self, order: Tensor) -> None:
        self.arranged = lambda x: x.flatten(1)[:, order]

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.hidden(self.arranged(x))))


class AsNumber(Ordered):
    def keep(self, order: Tensor) -> None:
        self.shift = random.random()

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.hidden(x.flatten(1) + self.shift)))


class Unlisted(nn.Module):
    """Its first layer is in a plain list."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.layers, self.out = [nn.Linear(math.prod(shape), 8)], nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.relu(self.layers[0](x.flatten(1))))


class Deciding(nn.Sequential):
    """Its width is drawn."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        width = 4 + int(torch.randint(1000, ()))
        super().__init__(
            nn.Flatten(), nn.Linear(math.prod(shape), width), nn.ReLU(), nn.Linear(width, classes)
        )


class Positions(Ordered):
    """The same numbers in every build."""

    def keep(self, order: Tensor) -> None:
        self.register_buffer("order", torch.arange(len(order)), persistent=False)
        self.scale = torch.linspace(0, 1, len(order))


class Counting(Ordered):
    """Remembers how often it was used, and takes it into account."""

    def keep(self, order: Tensor) -> None:
        self.register_buffer("order", torch.arange(len(order)))
        self.uses, self.last = 0, [torch.zeros(8)]
        self.register_buffer("mean", torch.zeros(8), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.hidden(x.flatten(1)[:, self.order]))
        hidden = hidden + 0.1 * self.uses + self.last[0] + self.mean
        if self.training:
            self.uses += 1
            self.last[0] = hidden.detach().mean(0)
            self.mean.mul_(0.9).add_(hidden.detach().mean(0))
        return self.out(hidden)


class Shared(Ordered):
    """Remembers in its class how often any of its kind was used."""

    uses = 0

    def keep(self, order: Tensor) -> None:
        self.register_buffer("order", torch.arange(len(order)))

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            Shared.uses += 1
        return super().forward(x) * (1 + 0.1 * Shared.uses)


class Viewed(nn.Module):
    """`view` behind a convolution, as in most tutorials."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.conv, self.out = nn.Conv2d(channels, 8, 3, padding=1), nn.Linear(8 * height * width, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.conv(x))
        return self.out(x.view(x.size(0), -1))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.first = nn.Linear(math.prod(shape), 8)
        self.a, self.b = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.b.weight = self.a.weight
        self.out = nn.Linear(8, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x.flatten(1)))
        return self.out(torch.relu(self.b(torch.relu(self.a(x)))))


class Pooled(nn.Module):
    """One number for each channel, then `shape` makes them a row for each example."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv, self.out = nn.Conv2d(shape[0], 8, 3, padding=1), nn.Linear(8, classes)
        self.pool = nn.AdaptiveAvgPool2d(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.pool(torch.relu(self.conv(x))).flatten(1))


class Squeezed(Pooled):
    """A squeeze that loses the axis of a batch of one."""

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.pool(torch.relu(self.conv(x))).squeeze())


class Uneven(nn.Module):
    """Pools to a size that is no factor of its input's, which ONNX has no operator for."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv2d(shape[0], 4, 3, padding=1), nn.AdaptiveMaxPool2d(3)
        self.out = nn.Linear(36, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.pool(torch.relu(self.conv(x))).flatten(1))


def lazy(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(classes))


def _normed(norm, shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(
        norm(nn.Conv2d(shape[0], 4, 3, padding=1)),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4 * math.prod(shape[1:]), 8),
        nn.ReLU(),
        nn.Linear(8, classes),
    )


def weight_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return _normed(nn.utils.parametrizations.weight_norm, shape, classes)


def spectral_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return _normed(nn.utils.parametrizations.spectral_norm, shape, classes)


def old_weight_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return _normed(nn.utils.weight_norm, shape, classes)


def old_spectral_norm(shape: tuple[int, ...], classes: int) -> nn.Module:
    return _normed(nn.utils.spectral_norm, shape, classes)


class Complex(nn.Module):
    """Turns its inputs by angles in a complex buffer."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        size = math.prod(shape)
        self.register_buffer("turn", torch.polar(torch.ones(size), torch.rand(size)))
        self.out = nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x.flatten(1) * self.turn).real)


class ComplexWeight(nn.Module):
    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        size = math.prod(shape)
        self.factor = nn.Parameter(torch.ones(size, dtype=torch.complex64))
        self.out = nn.Linear(size, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.out((x.flatten(1) * self.factor).real)


class SelfSeeded(Ordered):
    """Seeds torch itself: its order depends on whether weights were drawn before it."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        torch.manual_seed(0)
        super().__init__(shape, classes)


def unused_lazy(shape: tuple[int, ...], classes: int) -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(math.prod(shape), classes))
    module.register_module("2", nn.Identity())
    module[2].further = nn.LazyLinear(3)
    return module


def wrong_lazy(shape: tuple[int, ...], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.Linear(9, classes))


class Generating(Positions):
    """Adds noise from a generator of its own."""

    def keep(self, order: Tensor) -> None:
        super().keep(order)
        self.noise = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        noise = torch.from_numpy(self.noise.normal(size=x.shape).astype(np.float32)) if self.training else 0.0
        return super().forward(x + noise)


class Paired(Pooled):
    """Compares each example with the second of its batch."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x[1])


class Unseeded(Positions):
    """Adds noise from a generator that each forward pass makes anew."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            x = x + torch.from_numpy(np.random.default_rng().normal(size=x.shape).astype(np.float32))
        return super().forward(x)
