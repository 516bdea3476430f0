"""What objectives compute alike with torch and without it."""

import numpy as np

from schemas.submodel import SubModelSpec
from schemas.tensors.arrays import Arrays


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
