"""The local optimizers by name, for programs that only check a plan: `optimizers` needs torch."""

from schemas.errors import ConfigError, nearest

OPTIMIZER_NAMES = ("sgd", "adam", "adamw")


def check_optimizer(name: str) -> None:
    """Raise `ConfigError` with the nearest match for an unknown optimizer."""
    if name not in OPTIMIZER_NAMES:
        raise ConfigError(f"unknown optimizer '{name}'{nearest(name, OPTIMIZER_NAMES)}")
