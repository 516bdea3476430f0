"""The learning rate of each step of a round, with and without torch."""

from schemas.strategy import TrainingPlan


def step_rate(plan: TrainingPlan, taken: int) -> float:
    """The learning rate after `taken` steps of the round: it rises linearly over the plan's `warm_up_steps`.

    Each round starts an optimizer anew. Adam's first steps are of full size in every weight, however small
    its gradient is (Ma and Yarats 2021), which kills channels of a network without normalisation.
    """
    return plan.learning_rate * min(1.0, (taken + 1) / (plan.warm_up_steps + 1))
