"""A real federation for the page: a broker, a server with its dashboard, honest and hostile devices."""

import re
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.session.events import WorkDone
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.transport.broker.launch import running_broker
from schemas.values import CapabilityProfile
from tests.forked import ForkedCommand, start_forked
from tests.hostile import mallory
from tests.hostile.mallory import Mallory

PACE_S = 0.5
"""Seconds that the steady device waits before it sends an update, so that the browser has the processor."""
STEADY, DOOMED, LIAR = "pi-steady", "pi-doomed", "pi-liar"
ROUNDS = 500
"""More rounds than a test needs; the test ends the run."""
WORDS = (
    "federation.name=home",
    "seed=3",
    f"rounds={ROUNDS}",
    "evaluate-tiers-every=1",
    "deliver=none",
    "data.source=digits",
    "model.name=mlp",
    "test-samples=60",
    "tiers.ratios=[0.5, 0.0]",
    "num-clients=3",
    "min-clients=1",
    "local-epochs=1",
    "batch-size=32",
    "deadline-s=60",
    "rejoin-s=1",
    'strategy.fraction={name = "constant", value = 1.0}',
    "strategy.uplink=[]",
)


class Unhurried(Agent):
    """An agent that sends each update `PACE_S` later."""

    def __init__(self, settings: AgentSettings, data: LocalData) -> None:
        super().__init__(settings, data)
        take, waited = self.loop.handle, list[WorkDone]()

        def pace(event: Any) -> None:
            if isinstance(event, WorkDone) and event not in waited:
                waited.append(event)
                threading.Timer(PACE_S, self.inbox.put, [event]).start()
            else:
                take(event)

        self.loop.handle = pace


@dataclass(frozen=True)
class Running:
    """The federation: `server` and the device `doomed` are processes, the `agents` are threads."""

    url: str
    server: ForkedCommand
    doomed: ForkedCommand
    agents: tuple[Agent, ...]

    def rest(self) -> None:
        """Stop the devices: the server then waits, and the processor is free for the browser."""
        for agent in self.agents:
            agent.stop()


@contextmanager
def running_federation(folder: Path) -> Iterator[Running]:
    """Server and one device as processes; two devices, one of which sends NaNs, in threads."""
    with ExitStack() as stack:
        address = parse_address(stack.enter_context(running_broker("auto", folder / "broker")).url)
        server, url = stack.enter_context(_server(address, folder))
        doomed = stack.enter_context(_process(address, folder))
        agents = _agents(address, folder)
        for agent in agents:
            thread = threading.Thread(target=agent.run, daemon=True)
            thread.start()
            stack.callback(thread.join, 30)
            stack.callback(agent.stop)
        yield Running(url, server, doomed, agents)


@contextmanager
def _server(address: BrokerAddress, folder: Path) -> Iterator[tuple[ForkedCommand, str]]:
    words = ["attending-adafl", *WORDS, "--broker", address, "--out", folder / "run"]
    server = start_forked("edge-server", "run", *words, "--dashboard", "127.0.0.1:0")
    try:
        assert server.stdout is not None
        reported = next((found for line in server.stdout if (found := re.search(r"http://\S+", line))), None)
        assert reported is not None
        # A full pipe that nobody reads would block the server.
        threading.Thread(target=server.stdout.read, daemon=True).start()
        yield server, reported[0]
    finally:
        server.terminate()
        server.wait(timeout=60)


@contextmanager
def _process(address: BrokerAddress, folder: Path) -> Iterator[ForkedCommand]:
    words = {
        "--broker": address,
        "--federation": "home",
        "--device-id": DOOMED,
        "--tier": 1,
        "--share": "1/30",
        "--threads": 1,
        "--state-dir": folder / DOOMED,
        "--data": "digits",
    }
    options = [word for pair in words.items() for word in pair]
    process = start_forked("edge-client", "run", *options, log=folder / "doomed.log")
    try:
        yield process
    finally:
        process.kill()
        process.wait(timeout=60)


def _agents(address: BrokerAddress, folder: Path) -> tuple[Agent, Agent]:
    digits = load_source("digits")

    def settings(name: str) -> AgentSettings:
        profile = CapabilityProfile(tier=2, machine="Raspberry Pi 4", processor="Cortex-A72", cores=4)
        return AgentSettings(
            federation="home",
            device=name,
            address=address,
            state=folder / name,
            source="digits",
            profile=profile,
            threads=1,
        )

    def data(first: int) -> LocalData:
        return LocalData(*holdout(digits.subset(range(first, first + 60)), seed=0))

    return Unhurried(settings(STEADY), data(0)), Mallory(settings(LIAR), data(60), (mallory.nan,))
