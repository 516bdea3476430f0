"""Server optimizers: how the global model follows the combined change (Reddi et al. 2021).

The pseudo-gradient is minus the combined change, so an optimizer steps against it as against any gradient.
Running statistics of a normalisation are averaged, whatever the optimizer. A coordinate that no client of a
round holds has the pseudo-gradient 0: its momentum decays and goes on moving it.

Steps are element-wise and made a few rows at a time: besides the two models only one block of the change and
of the optimizer's state is in memory.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from edge_client.system.plugins import Registry
from edge_server.strategy.aggregation.array_stores import ArrayStore, NewArrayStore
from edge_server.strategy.aggregation.blocks import all_blocks, as_rows
from edge_server.strategy.aggregation.updates import is_statistic
from schemas.tensors.arrays import Array, Arrays, Groups, rows_of


class ServerOptimizer(Protocol):
    """`state` holds the optimizer's own parameter groups (empty at first)."""

    def step(self, state: Groups, params: Arrays, pseudo_gradient: Arrays) -> tuple[Arrays, Groups]: ...


@dataclass(frozen=True)
class Sgd:
    """w - learning_rate * pseudo-gradient; with learning rate 1 the model becomes the mean (FedAvg)."""

    learning_rate: float = 1.0

    def __post_init__(self) -> None:
        _check(self.learning_rate)

    def step(self, state: Groups, params: Arrays, pseudo_gradient: Arrays) -> tuple[Arrays, Groups]:
        return {name: params[name] - self.learning_rate * pseudo_gradient[name] for name in params}, state


@dataclass(frozen=True)
class Momentum:
    """FedAvgM (Hsu et al. 2019): v <- beta v + change; w <- w + learning_rate v; beta = 0 is `Sgd`."""

    learning_rate: float = 1.0
    beta: float = 0.9

    def __post_init__(self) -> None:
        _check(self.learning_rate, beta=self.beta)

    def step(self, state: Groups, params: Arrays, pseudo_gradient: Arrays) -> tuple[Arrays, Groups]:
        """One step; the state's group `velocity` is v, of the parameters' shapes P, 0 at the start."""
        velocity = {
            name: self.beta * _state_array(state, "velocity", params, name) - pseudo_gradient[name]
            for name in params
            if not is_statistic(name)
        }
        after = {
            name: before + self.learning_rate * velocity[name]
            if name in velocity
            else before - pseudo_gradient[name]
            for name, before in params.items()
        }
        return after, {"velocity": velocity}


@dataclass(frozen=True)
class Adam:
    """FedAdam (Reddi et al. 2021, Algorithm 2): no bias correction, v starts at adaptivity squared.

    m <- beta1 m + (1 - beta1) change; v <- beta2 v + (1 - beta2) change^2;
    w <- w + learning_rate m / (sqrt(v) + adaptivity), where adaptivity is the paper's tau.
    """

    learning_rate: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    adaptivity: float = 1e-3

    def __post_init__(self) -> None:
        _check(self.learning_rate, beta1=self.beta1, beta2=self.beta2)
        if not self.adaptivity > 0:
            raise ValueError("adaptivity must be positive")

    def step(self, state: Groups, params: Arrays, pseudo_gradient: Arrays) -> tuple[Arrays, Groups]:
        """One step; the state's groups `first-moment` and `second-moment` are m and v, of shapes P."""
        first, second, after = {}, {}, {}
        for name, before in params.items():
            change = -pseudo_gradient[name]
            if is_statistic(name):
                after[name] = before + change
                continue
            m = _state_array(state, "first-moment", params, name)
            v = _state_array(state, "second-moment", params, name, start=self.adaptivity**2)
            first[name] = self.beta1 * m + (1 - self.beta1) * change
            second[name] = self.beta2 * v + (1 - self.beta2) * change**2
            step = first[name] / (np.sqrt(second[name]) + self.adaptivity)
            after[name] = (before + self.learning_rate * step).astype(np.float32)
        return after, {"first-moment": first, "second-moment": second}


def _state_array(state: Groups, group: str, params: Arrays, name: str, start: float = 0.0) -> Array:
    """A parameter's array in the state; filled with `start` before the first step."""
    return state[group][name] if group in state else np.full_like(params[name], start)


def _check(learning_rate: float, **betas: float) -> None:
    if not learning_rate > 0:
        raise ValueError("learning-rate must be positive")
    for name, beta in betas.items():
        if not 0 <= beta < 1:
            raise ValueError(f"{name} must be at least 0 and below 1")


def apply_optimizer(
    optimizer: ServerOptimizer, state: Groups, params: Arrays, change: Arrays, *, keep: NewArrayStore
) -> tuple[dict[str, Array], Groups]:
    """The next parameters and the optimizer's next state; the pseudo-gradient is minus the change."""
    after = {name: np.empty_like(array) for name, array in params.items()}
    kept: dict[str, ArrayStore] = {}
    for name, start, stop in all_blocks(params):
        array, made = params[name], rows_of(change, name, start, stop)
        before = {name: as_rows(array)[start:stop]}
        moved, gathered = optimizer.step(_rows(state, name, start, stop), before, {name: -as_rows(made)})
        as_rows(after[name])[start:stop] = moved[name]
        for group, arrays in gathered.items():
            if group not in kept:
                kept[group] = keep()
            for key, rows in arrays.items():
                kept[group].put_rows(key, (rows.dtype, array.shape), start, rows)
    return after, kept


def add_change(params: Arrays, change: Arrays) -> dict[str, Array]:
    after = {name: np.empty_like(array) for name, array in params.items()}
    for name, start, stop in all_blocks(params):
        made = as_rows(rows_of(change, name, start, stop))
        np.add(as_rows(params[name])[start:stop], made, out=as_rows(after[name])[start:stop])
    return after


def clamp_variances(params: Arrays) -> dict[str, Array]:
    """The parameters with running variances of at least 0, which noise or late updates may push below."""
    variances = {name for name in params if name.rpartition(".")[2] == "running_var"}
    return {name: np.maximum(array, 0) if name in variances else array for name, array in params.items()}


def _rows(state: Groups, name: str, start: int, stop: int) -> Groups:
    """The state's rows of one parameter; a group without it stays empty."""
    return {
        group: {name: as_rows(rows_of(arrays, name, start, stop))} if name in arrays else {}
        for group, arrays in state.items()
    }


SERVER_OPTIMIZERS: Registry[Callable[..., ServerOptimizer]] = Registry(
    "server-optimizer", {"sgd": Sgd, "momentum": Momentum, "adam": Adam}
)
