"""Opens the Sparkplug bridge that a federation file asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress
from edge_server.config.sparkplug import SparkplugSettings
from edge_server.observability.snapshot import Watcher
from edge_server.security.identity.service_certificates import service_broker_address
from schemas.errors import ConfigError


@contextlib.contextmanager
def open_sparkplug(
    settings: SparkplugSettings, federation: str, address: BrokerAddress, folder: Path
) -> Iterator[Watcher]:
    """Run the bridge until the block ends; the connection number is kept in `folder` over all runs.

    Raises `ConfigError` where a certificate or protobuf is missing.
    """
    assert settings.group is not None
    try:
        from edge_server.integrations.sparkplug.service import Sparkplug
    except ModuleNotFoundError as error:
        remedy = "pip install 'edge-federation[sparkplug]'"
        raise ConfigError(f"[sparkplug] group: {error.name} is not installed: {remedy}") from error
    broker = service_broker_address(address, "sparkplug", settings.authority, section="sparkplug")
    folder.mkdir(parents=True, exist_ok=True)
    connections = folder / f"sparkplug-{settings.group}-{federation}"
    node = Sparkplug(settings.group, federation, broker, connections)
    node.open()
    try:
        yield node
    finally:
        node.close()
