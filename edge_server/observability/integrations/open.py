"""Bridges from a run to other systems: Home Assistant, and SCADA hosts by Sparkplug.

Each is switched on by a section of the federation file and has its own connection; its failure ends no run.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.config import Config
from edge_server.config.object_store import HomeAssistantSettings, SparkplugSettings
from edge_server.observability.integrations.bridge import Bridge
from edge_server.observability.snapshot import Watcher, WatcherGroup
from edge_server.security.identity.settings import service_broker_address
from schemas.errors import ConfigError


@contextlib.contextmanager
def open_bridges(config: Config, address: BrokerAddress, registry: Path) -> Iterator[Watcher]:
    """All configured bridges as one watcher; raises `ConfigError` for a bridge that cannot be opened."""
    name = config.federation.name
    bridges: list[Bridge] = []
    if config.home_assistant.discovery:
        bridges.append(_home_assistant(config.home_assistant, name, address, registry))
    if config.sparkplug.group is not None:
        bridges.append(_sparkplug(config.sparkplug, name, address, registry.parent))
    with contextlib.ExitStack() as stack:
        for bridge in bridges:
            bridge.open()
            stack.callback(bridge.close)
        yield WatcherGroup(*bridges)


def _home_assistant(
    settings: HomeAssistantSettings, federation: str, address: BrokerAddress, registry: Path
) -> Bridge:
    from edge_server.observability.integrations.home_assistant.service import HomeAssistant

    broker, rollout = (
        service_broker_address(address, identity, settings.authority, section="home-assistant")
        for identity in ("home", "rollout")
    )
    return HomeAssistant(settings, federation, registry, address=broker, rollout=rollout)


def _sparkplug(settings: SparkplugSettings, federation: str, address: BrokerAddress, folder: Path) -> Bridge:
    """The bridge; the connection number is kept in `folder` over all runs."""
    assert settings.group is not None
    try:
        from edge_server.observability.integrations.sparkplug.service import Sparkplug
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[sparkplug]'"
        raise ConfigError(f"{error.name} is not installed", key="[sparkplug] group", remedy=remedy) from error
    broker = service_broker_address(address, "sparkplug", settings.authority, section="sparkplug")
    folder.mkdir(parents=True, exist_ok=True)
    connections = folder / f"sparkplug-{settings.group}-{federation}"
    return Sparkplug(settings.group, federation, broker, connections, datatypes=settings.datatypes)
