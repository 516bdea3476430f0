"""Corrections of a client's steps, so that clients with different data do not drift apart.

SCAFFOLD (Karimireddy et al. 2020, Stochastic Controlled Averaging, Algorithm 1) and IGFL-C (Huang et al.
2021, Behavior Mimics Distribution, Algorithm 2).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edge_client.system.lazy_torch import Tensor, nn
from edge_client.training.objectives import base, formulas
from schemas.tensors.arrays import Arrays, Groups


@dataclass(frozen=True, eq=False)
class _Controlled:
    """One parameter with its start x, the server's control c, and the device's c_i, all of its shape."""

    weight: "nn.Parameter"
    start: "Tensor"
    server: "Tensor"
    own: "Tensor"
    correction: "Tensor"


class Scaffold(base.LocalObjective):
    """Correct every gradient by c - c_i, so that clients with different data do not drift apart.

    The group `control` receives the server's c and sends c_i+ - c_i; c_i stays on the device, 0 at first.
    Option II: c_i+ = c_i - c + (x - y_i) / (K lr) after K steps; without steps, c_i does not change.

    The paper has plain SGD. With momentum, K is the `gradient_mass`, so that c_i+ is still a mean of local
    gradients; the paper's formula would exceed it by up to 1 / (1 - momentum), and from momentum 0.5 on
    controls could grow without bound. Only trained parameters have a control; running statistics send 0.
    """

    receives = frozenset({"control"})
    sends = frozenset({"control"})
    optimizers = frozenset({"sgd"})
    reads_outputs_only: ClassVar[bool] = True
    changing: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self) -> None:
        self._controlled: dict[str, _Controlled] = {}
        self._zeros: Arrays = {}
        self._steps = 0

    def setup(self, module: "nn.Module", context: base.TrainingContext) -> Iterable["nn.Parameter"]:
        from edge_client.pruning.surgery import arrays_of

        received, kept = context.received.get("control", {}), context.kept.get("own-control", {})
        for name, weight in base.trained_parameters(module).items():
            server, own = base.tensor_for(received, name, weight), base.tensor_for(kept, name, weight)
            self._controlled[name] = _Controlled(weight, weight.detach().clone(), server, own, server - own)
        self._zeros = {name: np.zeros_like(array) for name, array in arrays_of(module).items()}
        self._rate, self._momentum = context.plan.learning_rate, context.plan.momentum
        return ()

    def correct(self) -> None:
        self._steps += 1
        for controlled in self._controlled.values():
            if controlled.weight.grad is not None:
                controlled.weight.grad.add_(controlled.correction)

    def step_part(self, outputs: int) -> base.StepPart:
        def correct(gradients: base.Tensors, own: base.Tensors) -> base.Tensors:
            return {name: gradients[name] + control for name, control in own.items()}

        def advance() -> None:
            self._steps += 1

        return base.StepPart(
            {name: controlled.correction for name, controlled in self._controlled.items()},
            correct=correct,
            advance=advance,
        )

    def finish(self) -> Groups:
        if self._steps == 0:
            return {}
        changes = {
            name: base.array_of(self._change(controlled)) for name, controlled in self._controlled.items()
        }
        return {"control": {**self._zeros, **changes}}

    def keep(self) -> Groups:
        controls = {name: entry.own + self._change(entry) for name, entry in self._controlled.items()}
        return {"own-control": {name: base.array_of(control) for name, control in controls.items()}}

    def close(self) -> None:
        self._controlled = {}

    def _change(self, controlled: _Controlled) -> "Tensor":
        """c_i+ - c_i."""
        if self._steps == 0:
            return controlled.own * 0
        way = self._rate * formulas.gradient_mass(self._steps, self._momentum)
        return (controlled.start - controlled.weight.detach()) / way - controlled.server


@dataclass(frozen=True, eq=False)
class _Guided:
    """One parameter with its start, the device's last step, and the constant added to each gradient."""

    weight: "nn.Parameter"
    start: "Tensor"
    own_step: "Tensor"
    constant: "Tensor"


class Igfl(base.LocalObjective):
    """Combine the individual's and the group's step: w <- w + Delta_I + Delta_G (lines 5 and 6).

    Delta_I = -lr g; Delta_G = (Delta_I - Delta w_i / T) / |S| + Delta w_ps / T. The group `last-step` has
    Delta w_ps, the global model's last change; Delta w_i, of this device's last counted round, stays on the
    device; both are 0 at first. |S| is the number of devices in the round. Delta_G is multiplied by
    `strength`: 1 in the paper; 0 is plain SGD to the bit (eq. 4).

    Gradients become g (1 + 1 / |S|) + (Delta w_i / |S| - Delta w_ps) / (lr T). The paper has plain SGD; with
    momentum, T is the `gradient_mass` of the round, so that the constant part has the same sum as without.
    Weight decay is no part of g.
    """

    receives = frozenset({"last-step"})
    optimizers = frozenset({"sgd"})
    reads_outputs_only: ClassVar[bool] = True
    changing: ClassVar[tuple[str, ...]] = ("steps",)

    def __init__(self, *, strength: float = 1.0) -> None:
        self._strength = base.checked_factor("igfl", "strength", strength)
        self._guided: dict[str, _Guided] = {}
        self._steps = 0

    def setup(self, module: "nn.Module", context: base.TrainingContext) -> Iterable["nn.Parameter"]:
        received, kept = context.received.get("last-step", {}), context.kept.get("own-step", {})
        plan, share = context.plan, 1 / context.plan.participants
        way = plan.learning_rate * formulas.gradient_mass(context.steps, plan.momentum)
        self._factor = 1 + self._strength * share
        for name, weight in base.trained_parameters(module).items():
            group, own = base.tensor_for(received, name, weight), base.tensor_for(kept, name, weight)
            # Without steps `way` is 0, and the constant is not used.
            constant = self._strength * (share * own - group) / (way or 1.0)
            self._guided[name] = _Guided(weight, weight.detach().clone(), own, constant)
        return ()

    def correct(self) -> None:
        self._steps += 1
        if self._strength == 0:
            return
        for guided in self._guided.values():
            if guided.weight.grad is not None:
                guided.weight.grad.mul_(self._factor).add_(guided.constant)

    def keep(self) -> Groups:
        return {
            "own-step": {name: base.array_of(self._step(guided)) for name, guided in self._guided.items()}
        }

    def close(self) -> None:
        self._guided = {}

    def _step(self, guided: _Guided) -> "Tensor":
        """w_i^{r,T} - w_ps^r; the previous one if no step was taken."""
        return guided.weight.detach() - guided.start if self._steps else guided.own_step
