"""Devices that do not train: `python -m tests.benchmarks.light_devices URL FOLDER NAME...`.

Each is the real agent with link, session, blob store and disk; instead of training it sends a prepared
update, the blob named in `FOLDER/NAME/update.json`.
"""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.session.events import WorkDone
from edge_client.agent.worker import Worker
from edge_client.data.local import LocalData
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import parse_address
from schemas.messages import Task
from schemas.tensors.chunks import BlobRef
from schemas.values import CapabilityProfile
from tests.benchmarks.untrained import answer

FEDERATION = "bench"


class LightWorker(Worker):
    """A worker that finishes every task immediately."""

    def __init__(self, agent: Agent, update: BlobRef) -> None:
        super().__init__(agent.inbox)
        self._agent, self._update = agent, update

    def warm_up(self) -> None:
        """Do nothing."""

    def start(self, task: Task, place: Any) -> None:
        """Report the prepared update."""
        blob = self._update.model_copy(update={"chunk_bytes": place.chunk_bytes})
        self._agent.inbox.put(WorkDone(answer(task, place.device, blob, examples=10)))


def light(url: str, folder: Path, name: str) -> Agent:
    """Create a device."""
    data = load_source("digits").subset(range(10))
    settings = AgentSettings(
        FEDERATION, name, parse_address(url), folder / name, "digits", CapabilityProfile(tier=1), once=True
    )
    agent = Agent(settings, LocalData(data, data))
    agent.runner.worker = LightWorker(
        agent, BlobRef.model_validate_json((folder / name / "update.json").read_bytes())
    )
    return agent


def main() -> None:
    """Run all devices to the end of one run."""
    url, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    agents = [light(url, folder, name) for name in names]
    with ThreadPoolExecutor(len(agents)) as pool:
        list(pool.map(Agent.run, agents))


if __name__ == "__main__":
    main()
