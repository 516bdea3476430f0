"""Whether the updates of a run may be added in parts, by several processes or at several sites."""

from collections.abc import Iterator

from edge_server.config.config import Config
from edge_server.strategy.components import needs_each_update
from edge_server.strategy.strategy import Strategy
from schemas.errors import ConfigError


def separate(config: Config) -> list[str]:
    """What needs every update by itself, as "combiner 'median'"; empty where a sum is enough."""
    found = list(needs_each_update(config.strategy))
    if config.privacy.gaussian is not None:
        found.append("differential privacy, which clips each update,")
    if config.privacy.secure_aggregation:
        found.append("secure aggregation, which opens the sum of all masks,")
    return found


def summability(config: Config) -> str:
    if needed := separate(config):
        return f"sums: {' and '.join(needed)} need{'s'[len(needed) > 1 :]} each update: one process adds them"
    return "sums: exact, so that several processes and sites may add the updates in parts"


# Checks for runs with sites, whose gateways add updates that the server never sees.

_KEY = "[federation] sites"


def site_problems(config: Config, strategy: Strategy) -> Iterator[ConfigError]:
    """One line per setting that needs single updates at the server, with a remedy."""
    sites = config.federation.sites
    if not sites:
        return
    if twice := sorted({site for site in sites if sites.count(site) > 1}):
        yield ConfigError(f"'{twice[0]}' is named twice", key=_KEY, remedy="name each site once")
    if needed := separate(config):
        yield ConfigError(
            f"{' and '.join(needed)} need{'s'[len(needed) > 1 :]} each update, and gateways send their sum",
            key=_KEY,
            remedy="choose other components, or leave sites out",
        )
    if config.clients.mode == "buffered":
        yield ConfigError("sums are those of one round", key=_KEY, remedy='set [clients] mode = "rounds"')
    if config.object_store.store is not None:
        yield ConfigError(
            "[object-store] updates would go past the gateways", key=_KEY, remedy="leave store out"
        )
