"""The effect of momentum on the sum of a round's steps."""


def gradient_mass(steps: int, momentum: float) -> float:
    """The sum of the weights of gradients over `steps` steps of SGD with momentum; `steps` without momentum.

    A gradient counts 1, beta, beta^2 and so on in the steps that follow; the sum over all gradients is
    FedNova's |a|_1 (Wang et al. 2020).
    """
    return (steps - momentum * (1 - momentum**steps) / (1 - momentum)) / (1 - momentum)
