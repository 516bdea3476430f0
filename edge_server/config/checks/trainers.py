"""Checks of what devices without torch can train: objectives that no step graph can have."""

from collections.abc import Iterator

from edge_client.training.step_graphs.running.objectives.registry import why_unsupported
from edge_server.config.config import Config
from edge_server.strategy.strategy import Strategy
from schemas.errors import ConfigError


def trainer_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """Objectives that need torch, in a simulation of devices without it."""
    if "onnx" in config.simulation.trainers:
        for why in _reasons(config):
            yield ConfigError(
                why, key="[simulation] trainer", remedy='set trainer = "torch", or leave the objective out'
            )


def trainer_advice(config: Config) -> Iterator[str]:
    """One line if devices without torch would be left out of every round: the fleet is not known."""
    if reasons := [*_reasons(config)]:
        left_out = "Devices without torch are left out of this federation (guide: trainers)"
        yield f"advice: {'; '.join(reasons)}. {left_out}"


def _reasons(config: Config) -> Iterator[str]:
    reasons = (why_unsupported((component,)) for component in config.strategy.objectives)
    return (why for why in reasons if why)
