"""ATTENDING's attention module (equations 1 to 6, appendix B), inserted behind layers during training.

Spatial attention A_S applies to groups of channels, channel attention A to all of them; a channel's score is
the mean of A over the data. A is computed from X * A_S (appendix B, not from A_S as in equation 5).
Equation 5 normalises over all channels as one group: with a group per channel a 1x1 map would become zero.

According to the paper the module adds 0.2% of parameters to 2NN. Equations 1 to 5 as printed contain only the
affine parameters of two group norms: 4 * 64 = 256 behind conv2 (0.015%), 4 * (32 + 64 + 512) = 2,432 behind
all three hidden layers (0.146%). SGE (Li et al. 2019), the basis of equations 1 to 4, has a scale and a shift
per group, 16 more. No reading gives 0.2% behind conv2 alone, so nothing was added.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from schemas.errors import ConfigError, InvariantError, nearest

EPSILON = 1e-5
MAX_GROUPS = 8


def spatial_groups(channels: int) -> int:
    """The number of groups: the largest divisor up to 8 that gives groups of an even number of channels."""
    divisors = [g for g in range(1, MAX_GROUPS + 1) if channels % g == 0]
    even = [g for g in divisors if channels // g % 2 == 0]
    return max(even or divisors)


class AttentionModule(nn.Module):
    """Weighs a feature map by spatial and channel attention: X * A_S * A.

    `forward` takes [B, C, ...positions] or [B, C] (a map of one position).
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.groups = spatial_groups(channels)
        self.average_norm = nn.GroupNorm(1, channels)
        self.maximum_norm = nn.GroupNorm(1, channels)
        self._seen: list[Tensor] = []

    @property
    def attention(self) -> Tensor | None:
        """The last batch's A [B, C]: the mean over all places where a network uses the layer."""
        return sum(self._seen[1:], self._seen[0]) / len(self._seen) if self._seen else None

    def take(self) -> Tensor | None:
        """`attention`, which is then forgotten."""
        last, self._seen = self.attention, []
        return last

    def forward(self, x: Tensor) -> Tensor:
        maps = x.reshape(*x.shape[:2], -1)
        weighed = maps * self.spatial_attention(maps)
        attention = self._channel(weighed)
        # Passes that nobody takes, such as a trial, have another number of examples.
        same = [each for each in self._seen if len(each) == len(attention)]
        self._seen = [*same, attention.detach()]
        return (weighed * attention.unsqueeze(-1)).reshape(x.shape)

    def spatial_attention(self, x: Tensor) -> Tensor:
        """Equations 1 to 4: [B, C, N] to A_S [B, C, N], equal within a group."""
        local = x.reshape(x.shape[0], self.groups, -1, x.shape[2])
        half = local.shape[2] // 2
        pooled = (local[:, :, :half].mean(-1), local[:, :, half:].amax(-1))
        similarity = (torch.cat(pooled, 2).unsqueeze(-1) * local).sum(2)
        centred = similarity - similarity.mean(-1, keepdim=True)
        # Population deviation: the sample deviation of a single position is undefined.
        deviation = similarity.std(-1, keepdim=True, unbiased=False)
        spatial = torch.sigmoid(centred / (deviation + EPSILON))
        return spatial.repeat_interleave(local.shape[2], 1)

    def _channel(self, x: Tensor) -> Tensor:
        """Equation 5: [B, C, N] to A [B, C]."""
        normed = _norm(self.average_norm, x.mean(-1)) + _norm(self.maximum_norm, x.amax(-1))
        return torch.sigmoid(normed)


class Attached:
    """Attention modules behind layers of a network until removed; its state dict does not contain them."""

    def __init__(self, modules: dict[str, AttentionModule], layers: dict[str, nn.Module]) -> None:
        # Names of submodules may not hold dots.
        self.modules = nn.ModuleDict({name.replace(".", "/"): module for name, module in modules.items()})
        self.by_layer = modules
        self._hooks = [layers[name].register_forward_hook(_hook(modules[name])) for name in modules]
        self.reset()

    def parameters(self) -> Iterator[nn.Parameter]:
        """Parameters that the optimizer trains in addition to the network's."""
        return self.modules.parameters()

    def reset(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._examples: dict[str, int] = {}

    def observe(self) -> None:
        """Add the attention of the last forward batch."""
        for name, attention in self.take_last().items():
            batch = attention.double().sum(0)
            self._totals[name] = self._totals[name] + batch if name in self._totals else batch
            self._examples[name] = self._examples.get(name, 0) + len(attention)

    def take_last(self) -> dict[str, Tensor]:
        """The attention [B, C] of the last forward batch, which is then forgotten."""
        taken = {name: module.take() for name, module in self.by_layer.items()}
        return {name: attention for name, attention in taken.items() if attention is not None}

    def set_totals(self, totals: Mapping[str, Tensor], examples: int) -> None:
        """Take sums over so many examples for those of all observed batches."""
        self._totals, self._examples = dict(totals), dict.fromkeys(totals, examples)

    def scores(self) -> dict[str, NDArray[np.float32]]:
        """Equation 6: the mean attention per layer [C] over examples; `InvariantError` before any batch."""
        missing = [name for name in self.by_layer if name not in self._totals]
        if missing:
            raise InvariantError(f"no batch was observed behind {missing}")
        means = {name: total / self._examples[name] for name, total in self._totals.items()}
        return {name: mean.to("cpu", torch.float32).numpy() for name, mean in means.items()}

    def state(self) -> dict[str, Any]:
        return {"modules": self.modules.state_dict(), "totals": self._totals, "examples": self._examples}

    def resume(self, state: Mapping[str, Any]) -> None:
        self.modules.load_state_dict(state["modules"])
        places = {name: next(module.parameters()).device for name, module in self.by_layer.items()}
        self._totals = {name: total.to(places[name]) for name, total in state["totals"].items()}
        self._examples = dict(state["examples"])

    def remove(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    def __enter__(self) -> "Attached":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


def attach(module: nn.Module, layers: Iterable[str]) -> Attached:
    """Insert an attention module behind each named convolution or linear layer; `ConfigError` for others."""
    known = {name: layer for name, layer in module.named_modules() if _channels(layer)}
    chosen = {}
    for name in layers:
        if name not in known:
            raise ConfigError(f"no convolution or linear layer is named {name!r}{nearest(name, known)}")
        chosen[name] = known[name]
    return Attached({name: _attention_for(layer) for name, layer in chosen.items()}, chosen)


def _channels(layer: Any) -> int:
    return int(getattr(layer, "out_channels", 0) or getattr(layer, "out_features", 0))


def _attention_for(layer: Any) -> AttentionModule:
    return AttentionModule(_channels(layer)).to(layer.weight.device, layer.weight.dtype)


def _norm(norm: nn.GroupNorm, x: Tensor) -> Tensor:
    # The module itself refuses a single channel in a batch of one.
    return torch.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)


def _hook(attention: AttentionModule) -> Callable[[nn.Module, object, Tensor], Tensor]:
    def weigh(layer: nn.Module, inputs: object, output: Tensor) -> Tensor:
        # A linear layer over sequences has its channels last.
        last = isinstance(layer, nn.Linear) and output.ndim > 2
        weighed: Tensor = attention(output.movedim(-1, 1) if last else output)
        return weighed.movedim(1, -1) if last else weighed

    return weigh
