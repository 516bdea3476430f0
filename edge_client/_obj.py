"""What a client optimises beside its plain loss: one small object per algorithm, chosen by name.

Plain SGD is no objective at all. FedProx wraps the loss, SCAFFOLD corrects gradients, ATTENDING observes:
each is one class here and one entry in `OBJECTIVES`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from edge_client.attention import Attached, attach
from schemas.blobs import Arrays, Groups
from schemas.errors import ConfigError, nearest
from schemas.strategy import Piece, TrainingPlan


@dataclass(frozen=True, eq=False)
class Batch:
    """One forward pass: the module in training, inputs [B, C, H, W], labels [B], outputs [B, classes]."""

    module: nn.Module
    inputs: Tensor
    labels: Tensor
    outputs: Tensor


class LocalObjective(Protocol):
    """One algorithm's part in local training; whoever is called does nothing unless it has something to do.

    Called in this order: `setup`; `start_epoch` per epoch; `loss` and `correct` per batch; `finish`. `close`
    always comes last, after errors too.
    """

    def setup(self, module: nn.Module, received: Groups, plan: TrainingPlan) -> Iterable[nn.Parameter]:
        """Take hold of the module and the groups sent along; returns further parameters to train."""
        return ()

    def start_epoch(self) -> None:
        """A new pass over the data begins."""

    def loss(self, batch: Batch, base: Tensor) -> Tensor:
        """Wrap the scalar loss so far; called once right after each forward pass."""
        return base

    def correct(self) -> None:
        """Change the gradients of the module before the optimizer's step."""

    def finish(self) -> Groups:
        """The groups to send beside the model."""
        return {}

    def close(self) -> None:
        """Let go of the module: it must be as plain as it was before `setup`."""


class Attentive(LocalObjective):
    """Attentive training (ATTENDING, Algorithm 1, lines 1-6 and 13).

    Attention modules stand behind the target layers while training; the last epoch's scores are the group
    `attention`, {layer: [C]} (eq. 6).
    """

    def __init__(self, *, layers: tuple[str, ...]) -> None:
        self._layers = layers
        self._attached: Attached | None = None
        self._observed = False

    def setup(self, module: nn.Module, received: Groups, plan: TrainingPlan) -> Iterable[nn.Parameter]:
        self._attached = attach(module, self._layers)
        return tuple(self._attached.parameters())

    def start_epoch(self) -> None:
        if self._attached is not None:
            self._attached.reset()

    def loss(self, batch: Batch, base: Tensor) -> Tensor:
        if self._attached is not None:
            self._attached.observe()
            self._observed = True
        return base

    def finish(self) -> Groups:
        # Without a forward pass there are no scores, and zeros would look like a ranking.
        if self._attached is None or not self._observed:
            return {}
        return {"attention": self._attached.scores()}

    def close(self) -> None:
        if self._attached is not None:
            self._attached.remove()
            self._attached = None


class Prox(LocalObjective):
    """Stay near the received model (FedProx, Li et al. 2020, eq. 2): loss + mu / 2 * |w - w_received|^2.

    Over the trained parameters of the sub-model, as large as it is; mu = 0 is plain SGD exactly.
    """

    def __init__(self, *, mu: float = 0.01) -> None:
        if not (isinstance(mu, int | float) and 0 <= mu < math.inf):
            raise ConfigError(f"objective 'prox': mu must be a number of at least 0, got {mu!r}")
        self._mu = mu
        self._pairs: list[tuple[nn.Parameter, Tensor]] = []

    def setup(self, module: nn.Module, received: Groups, plan: TrainingPlan) -> Iterable[nn.Parameter]:
        # The module holds the received weights when training begins, on its own device.
        self._pairs = [(w, w.detach().clone()) for w in module.parameters() if w.requires_grad]
        return ()

    def loss(self, batch: Batch, base: Tensor) -> Tensor:
        if self._mu == 0:
            return base
        squares = torch.stack([(w - start).square().sum() for w, start in self._pairs])
        return base + self._mu / 2 * squares.sum()

    def close(self) -> None:
        self._pairs = []


OBJECTIVES: Mapping[str, Callable[..., LocalObjective]] = {
    "attentive": Attentive,
    "prox": Prox,
}


def build_objectives(pieces: Iterable[Piece]) -> tuple[LocalObjective, ...]:
    """Make the objectives of a plan, in order; raises `ConfigError` for unknown names and options."""
    return tuple(_build(piece) for piece in pieces)


def _build(piece: Piece) -> LocalObjective:
    make = OBJECTIVES.get(piece.name)
    if make is None:
        raise ConfigError(f"unknown objective {piece.name!r}{nearest(piece.name, OBJECTIVES)}")
    parameters = inspect.signature(make).parameters
    options: dict[str, Any] = dict(piece.options)
    for option in options:
        if option not in parameters:
            raise ConfigError(
                f"objective {piece.name!r} has no option {option!r}{nearest(option, parameters)}"
            )
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise ConfigError(f"objective {piece.name!r} needs the option {name!r}")
    return make(**options)


def merge_groups(parts: Iterable[Groups]) -> dict[str, Arrays]:
    """Join the groups of several objectives; raises `ConfigError` when two send the same group."""
    merged: dict[str, Arrays] = {}
    for part in parts:
        for group, arrays in part.items():
            if group in merged:
                raise ConfigError(f"two objectives send the group {group!r}")
            merged[group] = arrays
    return merged
