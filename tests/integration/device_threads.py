"""Devices in threads of this process: torch is imported only once."""

import contextlib
from collections.abc import Iterator
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
    agents = [_agent(config, address, state, index) for index in range(first, config.clients.num_clients)]
    with ThreadPoolExecutor(len(agents)) as pool:
        ends = [pool.submit(agent.run) for agent in agents]
        try:
            yield ends
        finally:
            wait(ends, timeout=5)
            for agent in agents:
                agent.stop()


def _agent(config: Config, address: BrokerAddress, state: Path, index: int) -> Agent:
    name, seed = device_name(index), config.federation.seed
    (state / name).mkdir(parents=True, exist_ok=True)
    settings = AgentSettings(
        federation=config.federation.name,
        device=name,
        address=address,
        state=state / name,
        source=config.data.source or "digits",
        profile=CapabilityProfile(tier=index % len(config.tiers.ratios) + 1),
        once=True,
        threads=1,
    )
    partition = parse_partition(config.data.partition_spec)
    data = load_source(settings.source)
    mine = share(data, partition, index=index, count=config.clients.num_clients, seed=seed)
    return Agent(settings, LocalData(*holdout(mine, seed=seed)))
