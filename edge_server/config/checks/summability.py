"""Whether the updates of a run may be added in parts, by several processes or at several sites."""

from edge_server.config.config import Config
from edge_server.strategy.summability import needs_each_update


def separate(config: Config) -> list[str]:
    """What needs every update by itself, as "combiner 'median'"; empty where a sum is enough."""
    found = list(needs_each_update(config.strategy))
    if config.privacy.gaussian is not None:
        found.append("differential privacy, which clips each update,")
    if config.privacy.secure_aggregation:
        found.append("secure aggregation, which opens the sum of all masks,")
    return found


def summability(config: Config) -> str:
    """One line for people."""
    if needed := separate(config):
        return f"sums: {' and '.join(needed)} need{'s'[len(needed) > 1 :]} each update: one process adds them"
    return "sums: exact, so that several processes and sites may add the updates in parts"
