"""Which epochs of a training are sharpness-aware, with and without torch."""

from schemas.strategy import TrainingPlan

WORK = 2
"""Epochs that a sharpness-aware one counts as: each of its steps runs both passes twice."""
SMALLEST_NORM = 1e-12
"""Gradients of a smaller norm move the weights by less than the radius."""


def epoch_radius(plan: TrainingPlan, done: int) -> float:
    """The radius of the next epoch: the plan's `sam_radius`, or 0 for plain steps.

    `done` epochs of the plan's are over, of which a sharpness-aware one is two. The first epochs of a round
    are sharpness-aware, and its last one is plain.
    """
    return plan.sam_radius if plan.local_epochs - done > WORK else 0.0


def passes(plan: TrainingPlan, epochs: int) -> int:
    """Passes over the data in the plan's first `epochs`, where a sharpness-aware pass counts as two."""
    sharp = max(0, plan.local_epochs - 1) // WORK if plan.sam_radius else 0
    return epochs - min(epochs // WORK, sharp)
