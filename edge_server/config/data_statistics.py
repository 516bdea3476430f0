"""The configuration of a pass of statistics: the federation's own, with rounds that train nothing."""

from typing import Any

from edge_server.config.config import Config
from edge_server.strategy.data_statistics import ROUNDS


def for_statistics(config: Config) -> Config:
    run = {"statistics": True, "rounds": ROUNDS, "when": "at-once", "deliver": "none", "deliver_every": 0}
    sections: dict[str, dict[str, Any]] = {
        "federation": run,
        "clients": {"mode": "rounds", "over_select": 1.0},
        "firewall": {"canary": None},
        "model": {"from_": None},
    }
    changed = {name: getattr(config, name).model_copy(update=keys) for name, keys in sections.items()}
    return config.model_copy(update=changed)
