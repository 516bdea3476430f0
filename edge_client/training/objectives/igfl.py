"""IGFL's client optimizer, IGFL-C (Huang et al. 2021, Behavior Mimics Distribution, Algorithm 2)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from edge_client.system.lazy_torch import Tensor, nn
from edge_client.training.objectives import base, formulas
from schemas.tensors.arrays import Groups


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

    def state(self) -> Mapping[str, Any]:
        return {"steps": self._steps}

    def resume(self, state: Mapping[str, Any]) -> None:
        self._steps = state["steps"]

    def close(self) -> None:
        self._guided = {}

    def _step(self, guided: _Guided) -> "Tensor":
        """w_i^{r,T} - w_ps^r; the previous one if no step was taken."""
        return guided.weight.detach() - guided.start if self._steps else guided.own_step
