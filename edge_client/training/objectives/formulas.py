"""What objectives compute alike with torch and without it."""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import numpy as np

from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays, Groups


class Objective(Protocol):
    """What an objective sends, keeps and carries over, with torch and without it. By default it does nothing.

    `changing` names the attributes, each with an underscore before it, that epochs change.
    """

    changing: ClassVar[tuple[str, ...]] = ()

    def start_epoch(self) -> None:
        """Begin a pass over the data."""
        return

    def finish(self) -> Groups:
        """The groups to send with the model."""
        return {}

    def keep(self) -> Groups:
        """The groups that the device keeps for its next round, once the server has counted this one."""
        return {}

    def state(self) -> Mapping[str, Any]:
        """Values and tensors that the epochs changed, without the weights and what `setup` makes again."""
        return {name: getattr(self, f"_{name}") for name in self.changing}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Restore the result of `state`."""
        for name in self.changing:
            setattr(self, f"_{name}", state[name])


def gradient_mass(steps: int, momentum: float) -> float:
    """The sum of the weights of gradients over `steps` steps of SGD with momentum; `steps` without momentum.

    A gradient counts 1, beta, beta^2 and so on in the steps that follow; the sum over all gradients is
    FedNova's |a|_1 (Wang et al. 2020).
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)


def smaller_specs(widths: Arrays) -> list[SubModelSpec]:
    """The smaller sub-models of the group `widths`, by number, from the channels of each `number/group`."""
    kept: dict[str, dict[str, tuple[int, ...]]] = {}
    for name, channels in widths.items():
        number, _, group = name.partition("/")
        kept.setdefault(number, {})[group] = tuple(channels.tolist())
    return [SubModelSpec(kept=kept[number]) for number in sorted(kept, key=int)]


def drawn_width(seed: int, step: int, *, smaller: int, own: float | None) -> int:
    """The width of a step among `smaller` ones and, as the last, the device's own, of probability `own`.

    Without `own` all are equally probable.
    """
    random = np.random.default_rng((seed, step))
    if own is not None and random.random() < own:
        return smaller
    return int(random.integers(smaller + 1 if own is None else max(1, smaller)))
