"""A compact transformer encoder for pictures and signals.

The blocks, learned positions and patches of Dosovitskiy et al. 2021 (An Image is Worth 16x16 Words, section
3.1), a third as wide and deep as DeiT-Ti (Touvron et al. 2021, table 1: width 192, depth 12); the mean over
tokens in place of a class token (Beyer et al. 2022, Better plain ViT baselines for ImageNet-1k).

Heads and hidden layers may be cut. The embedding of 64 is not: layer normalisation takes the mean over it, so
that the other channels of a token would change with every one that is cut.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from schemas.errors import ConfigError

WIDTH, DEPTH, HEADS, HIDDEN = 64, 4, 4, 128
HEAD = WIDTH // HEADS
TOKENS = 64  # an input becomes at most this many patches, about as many along each axis
MIN_SIDE = 4


class Positions(nn.Module):
    """A learned vector for each of the tokens, which is added to it."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(tokens, WIDTH))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, 64] to [B, T, 64]."""
        return x + self.weight


class Attention(nn.Module):
    """Self-attention [B, T, 64] with a linear layer each for values, queries and keys.

    The number of heads is that of the layers' outputs: a sub-model has fewer.
    """

    def __init__(self) -> None:
        super().__init__()
        self.value, self.query, self.key = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """Each token's sum of the values of all tokens, weighed by head."""
        # Each [B, heads, T, 16].
        layers = (self.value, self.query, self.key)
        value, query, key = (layer(x).unflatten(2, (-1, HEAD)).transpose(1, 2) for layer in layers)
        scores = torch.matmul(query, key.transpose(2, 3)) * HEAD**-0.5
        found = torch.matmul(torch.softmax(scores, -1), value)
        return self.out(found.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


class Block(nn.Module):
    """Attention and a hidden layer of 128 with GELU, each of a normalised input and added to that input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.norm2 = nn.LayerNorm(WIDTH)
        self.linear1, self.linear2 = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        """[B, T, 64] to [B, T, 64]."""
        x = x + self.attention(self.norm1(x))
        return x + self.linear2(functional.gelu(self.linear1(self.norm2(x))))  # type: ignore[no-any-return]


class ViTTiny(nn.Module):
    """Four blocks of four heads over at most 64 patches, 138,890 parameters for (1, 28, 28) and 10 classes.

    Input pictures [B, C, H, W] or signals [B, C, L], sides from 4 on; `ConfigError` for another shape.
    """

    def __init__(self, input_shape: tuple[int, ...], num_classes: int, *, depth: int = DEPTH) -> None:
        super().__init__()
        channels, *sides = input_shape
        if len(sides) not in (1, 2) or min(sides) < MIN_SIDE:
            raise ConfigError(
                f"takes pictures [colours, height, width] or signals [channels, length] with sides of "
                f"{MIN_SIDE} or more"
            )
        most = round(TOKENS ** (1 / len(sides)))
        patch = max(2, -(-max(sides) // most))
        # Zeros at both ends, so that the last patch is whole.
        padding = tuple((-side % patch + 1) // 2 for side in sides)
        convolution: Any = nn.Conv2d if len(sides) == 2 else nn.Conv1d
        self.embed = convolution(channels, WIDTH, patch, stride=patch, padding=padding)
        tokens = math.prod(-(-side // patch) for side in sides)
        self.positions = Positions(tokens)
        self.blocks = nn.Sequential(*(Block() for _ in range(depth)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Class scores [B, classes]."""
        tokens = self.embed(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(self.positions(tokens))).mean(1))  # type: ignore[no-any-return]
