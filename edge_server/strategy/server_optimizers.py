"""Server optimizers: how the global model follows the combined change (Reddi et al. 2021).

The pseudo-gradient is minus the combined change, so an optimizer steps against it as against any gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from schemas.blobs import Arrays, Groups


class ServerOptimizer(Protocol):
    """`state` is parameter groups of the optimizer's own (empty at the start)."""

    def step(self, state: Groups, params: Arrays, pseudo_gradient: Arrays) -> tuple[Arrays, Groups]:
        """Return the next parameters and state."""
        ...


@dataclass(frozen=True)
class Sgd:
    """w - learning_rate * pseudo-gradient; with learning rate 1 the model becomes the mean (FedAvg)."""

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        if not self.learning_rate > 0:
            raise ValueError("learning-rate must be positive")

    def step(self, state: Groups, params: Arrays, pseudo_gradient: Arrays) -> tuple[Arrays, Groups]:
        """One step; there is no state."""
        return {name: params[name] - self.learning_rate * pseudo_gradient[name] for name in params}, state


SERVER_OPTIMIZERS: dict[str, Callable[..., ServerOptimizer]] = {
    "sgd": Sgd,
}
