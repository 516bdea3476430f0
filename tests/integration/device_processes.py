"""Devices as processes that start quickly, with the arguments of the demo's devices."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from edge_client.transport.broker_link import BrokerAddress
from edge_server.cli.demo import device_name, device_words
from edge_server.config.config import Config
from tests.forked import ForkedCommand, start_forked


@contextlib.contextmanager
def devices(config: Config, address: BrokerAddress, state: Path) -> Iterator[list[ForkedCommand]]:
    """A process per client of the configuration; those that remain are killed at the end of the block."""
    started = [start_device(config, address, state, index) for index in range(config.clients.num_clients)]
    try:
        yield started
    finally:
        for process in started:
            end_device(process)


def start_device(config: Config, address: BrokerAddress, state: Path, index: int) -> ForkedCommand:
    """Start device `index`, whose folder is below `state`; it ends with the run."""
    folder = state / device_name(index)
    folder.mkdir(parents=True, exist_ok=True)
    words = device_words(config, address, state, index)
    return start_forked("edge-client", "run", *words, log=folder / "client.log")


def end_device(process: ForkedCommand) -> None:
    """Kill a device's process if it still runs."""
    process.kill()
    process.wait(timeout=60)
