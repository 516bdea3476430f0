"""The learning rate of each step, with and without torch."""

from schemas.strategy import TrainingPlan


def step_rate(plan: TrainingPlan, taken: int, share: float = 1.0) -> float:
    """The learning rate after `taken` steps of the round: it rises linearly over the plan's `warm_up_steps`.

    Each round starts an optimizer anew. Adam's first steps are of full size in every weight, however small
    its gradient is (Ma and Yarats 2021), which kills channels of a network without normalisation.

    With `rate_by_width` a step of Adam on a `share` of the network's channels has the rate over that share:
    the rate of a hidden layer goes with one over its width (Yang and Hu 2022, Tensor Programs V, table 8).
    """
    rate = plan.learning_rate * min(1.0, (taken + 1) / (plan.warm_up_steps + 1))
    return rate / share if plan.rate_by_width and plan.optimizer != "sgd" else rate
