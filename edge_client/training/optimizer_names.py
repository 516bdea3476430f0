"""The local optimizers by name, for programs without torch, which `optimizers` needs."""

from schemas.errors import ConfigError, nearest
from schemas.strategy import TrainingSettings

OPTIMIZER_NAMES = ("sgd", "adam", "adamw")


def check_optimizer(name: str) -> None:
    """Raise `ConfigError` with the nearest match for an unknown optimizer."""
    if name not in OPTIMIZER_NAMES:
        raise ConfigError(f"unknown optimizer '{name}'{nearest(name, OPTIMIZER_NAMES)}")


def kept_per_number(plan: TrainingSettings) -> int:
    """Numbers kept per trained number: the optimizer's state, and the weights of a sharpness-aware step."""
    states = int(plan.momentum > 0) if plan.optimizer == "sgd" else 2
    return states + (plan.sam_radius > 0)
