"""Bridges from a run to other systems: Home Assistant, and SCADA hosts by Sparkplug.

Each is switched on by a section of the federation file and has its own connection; its failure ends no run.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress
from edge_server.config.config import Config
from edge_server.config.integrations import HomeAssistantSettings, SparkplugSettings
from edge_server.observability.snapshot import Watcher, WatcherGroup
from edge_server.security.identity.service_certificates import service_broker_address
from schemas.errors import ConfigError


@contextlib.contextmanager
def open_bridges(config: Config, address: BrokerAddress, registry: Path) -> Iterator[Watcher]:
    """All configured bridges as one watcher; raises `ConfigError` for a bridge that cannot be opened."""
    name = config.federation.name
    with contextlib.ExitStack() as stack:
        opened: list[Watcher] = []
        if config.home_assistant.discovery:
            home = open_home_assistant(config.home_assistant, name, address, registry)
            opened.append(stack.enter_context(home))
        if config.sparkplug.group is not None:
            node = open_sparkplug(config.sparkplug, name, address, registry.parent)
            opened.append(stack.enter_context(node))
        yield WatcherGroup(*opened)


@contextlib.contextmanager
def open_home_assistant(
    settings: HomeAssistantSettings, federation: str, address: BrokerAddress, registry: Path
) -> Iterator[Watcher]:
    """Run the bridge until the block ends; raises `ConfigError` where a certificate is missing."""
    from edge_server.observability.integrations.home_assistant.service import HomeAssistant

    home = HomeAssistant(
        settings,
        federation,
        registry,
        address=service_broker_address(address, "home", settings.authority, section="home-assistant"),
        rollout=service_broker_address(address, "rollout", settings.authority, section="home-assistant"),
    )
    home.open()
    try:
        yield home
    finally:
        home.close()


@contextlib.contextmanager
def open_sparkplug(
    settings: SparkplugSettings, federation: str, address: BrokerAddress, folder: Path
) -> Iterator[Watcher]:
    """Run the bridge until the block ends; the connection number is kept in `folder` over all runs.

    Raises `ConfigError` where a certificate or protobuf is missing.
    """
    assert settings.group is not None
    try:
        from edge_server.observability.integrations.sparkplug.service import Sparkplug
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[sparkplug]'"
        raise ConfigError(f"[sparkplug] group: {error.name} is not installed: {remedy}") from error
    broker = service_broker_address(address, "sparkplug", settings.authority, section="sparkplug")
    folder.mkdir(parents=True, exist_ok=True)
    connections = folder / f"sparkplug-{settings.group}-{federation}"
    node = Sparkplug(settings.group, federation, broker, connections, datatypes=settings.datatypes)
    node.open()
    try:
        yield node
    finally:
        node.close()
