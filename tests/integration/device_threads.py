"""Devices in threads of this process: torch is imported only once."""

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout, parse_partition, share
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import BrokerAddress
from edge_server.cli.demo import device_name
from edge_server.config.config import Config
from schemas.values import CapabilityProfile


@contextlib.contextmanager
def devices(
    config: Config, address: BrokerAddress, state: Path, *, first: int = 0
) -> Iterator[list[Future[str | None]]]:
    """Run the devices of `edge_server.cli.demo.devices` from number `first` on; yields their outcomes as
    futures.

    They are stopped at the end of the block.
    """
    with in_threads(
        [_agent(config, address, state, index) for index in range(first, config.clients.num_clients)]
    ) as ends:
        yield ends


@contextlib.contextmanager
def in_threads(agents: Sequence[Agent]) -> Iterator[list[Future[str | None]]]:
    """Run agents; they are stopped at the end of the block, unless they end soon by themselves."""
    with ThreadPoolExecutor(len(agents)) as pool:
        ends = [pool.submit(agent.run) for agent in agents]
        try:
            yield ends
        finally:
            wait(ends, timeout=5)
            for agent in agents:
                agent.stop()


def _agent(config: Config, address: BrokerAddress, state: Path, index: int) -> Agent:
    place = address, state / device_name(index)
    return sharing_agent(config, *place, index, tier=index % len(config.tiers.ratios) + 1)


def sharing_agent(config: Config, address: BrokerAddress, state: Path, index: int, *, tier: int) -> Agent:
    """A device with its share of the run's data, called as its folder."""
    state.mkdir(parents=True, exist_ok=True)
    names = config.federation.name, state.name
    source, profile = config.data.source or "digits", CapabilityProfile(tier=tier)
    settings = AgentSettings(*names, address, state, source, profile, once=True, threads=1)
    partition, seed = parse_partition(config.data.partition_spec), config.federation.seed
    mine = share(load_source(source), partition, index=index, count=config.clients.num_clients, seed=seed)
    return Agent(settings, LocalData(*holdout(mine, seed=seed)))
