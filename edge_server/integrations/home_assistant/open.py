"""Opens the Home Assistant bridge that a federation file asks for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress
from edge_server.config.home_assistant import HomeAssistantSettings
from edge_server.integrations.home_assistant.service import HomeAssistant
from edge_server.observability.snapshot import Watcher
from edge_server.security.identity.service_certificates import service_broker_address


@contextlib.contextmanager
def open_home_assistant(
    settings: HomeAssistantSettings, federation: str, address: BrokerAddress, registry: Path
) -> Iterator[Watcher]:
    """Run the bridge until the block ends; raises `ConfigError` where a certificate is missing."""
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
