"""Bridges from a run to what stands beside it: Home Assistant, and SCADA hosts that speak Sparkplug.

Each is asked for by a section of the federation file, and has a connection of its own: a run goes on whatever
becomes of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_address import BrokerAddress
from edge_server.config.config import Config
from edge_server.observability.snapshot import Watcher, WatcherGroup


@contextlib.contextmanager
def bridges(config: Config, address: BrokerAddress, registry: Path) -> Iterator[Watcher]:
    """All that the file asks for, as one who watches; raises `ConfigError` for what cannot be opened."""
    name = config.federation.name
    with contextlib.ExitStack() as stack:
        opened: list[Watcher] = []
        if config.home_assistant.discovery:
            from edge_server.integrations.home_assistant.open import opened_home_assistant

            home = opened_home_assistant(config.home_assistant, name, address, registry)
            opened.append(stack.enter_context(home))
        if config.sparkplug.group is not None:
            from edge_server.integrations.sparkplug.open import opened_sparkplug

            node = opened_sparkplug(config.sparkplug, name, address, registry.parent)
            opened.append(stack.enter_context(node))
        yield WatcherGroup(*opened)
