"""Bridges from a run to other systems: Home Assistant, and SCADA hosts by Sparkplug.

Each is switched on by a section of the federation file and has its own connection; its failure ends no run.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress
from edge_server.config.config import Config
from edge_server.observability.snapshot import Watcher, WatcherGroup


@contextlib.contextmanager
def open_bridges(config: Config, address: BrokerAddress, registry: Path) -> Iterator[Watcher]:
    """All configured bridges as one watcher; raises `ConfigError` for a bridge that cannot be opened."""
    name = config.federation.name
    with contextlib.ExitStack() as stack:
        opened: list[Watcher] = []
        if config.home_assistant.discovery:
            from edge_server.integrations.home_assistant.open import open_home_assistant

            home = open_home_assistant(config.home_assistant, name, address, registry)
            opened.append(stack.enter_context(home))
        if config.sparkplug.group is not None:
            from edge_server.integrations.sparkplug.open import open_sparkplug

            node = open_sparkplug(config.sparkplug, name, address, registry.parent)
            opened.append(stack.enter_context(node))
        yield WatcherGroup(*opened)
