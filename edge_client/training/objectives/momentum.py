"""What momentum does to the sum of a round's steps."""

from __future__ import annotations


def gradient_mass(steps: int, momentum: float) -> float:
    """How often a gradient counts in all over `steps` steps of SGD with momentum; just `steps` without any.

    A gradient at step j of K moves the weights at each of the steps left, by 1, beta, beta^2 and so on; the
    sum over all j is FedNova's |a|_1 (Wang et al. 2020).
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
