"""Devices that do all but train: `python -m tests.benchmarks.light_devices URL FOLDER NAME...`.

Each is the real agent with link, session, blob store and disk; instead of training it has its update ready,
the blob that `FOLDER/NAME/update.json` names.
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
from edge_client.transport.broker_address import parse_address
from schemas.messages import Task
from schemas.tensors.blobs import BlobRef
from schemas.values import CapabilityProfile
from tests.benchmarks.untrained import answer

FEDERATION = "bench"


class LightWorker(Worker):
    """Is done at once."""

    def __init__(self, agent: Agent, update: BlobRef) -> None:
        super().__init__(agent.inbox)
        self._agent, self._update = agent, update

    def warm_up(self) -> None:
        """There is nothing to warm."""

    def start(self, task: Task, place: Any) -> None:
        """Hand in the update that lies there."""
        blob = self._update.model_copy(update={"chunk_bytes": place.chunk_bytes})
        self._agent.inbox.put(WorkDone(answer(task, place.device, blob, examples=10)))


def light(url: str, folder: Path, name: str) -> Agent:
    """One of them."""
    data = load_source("digits").subset(range(10))
    settings = AgentSettings(
        FEDERATION, name, parse_address(url), folder / name, "digits", CapabilityProfile(tier=1), once=True
    )
    agent = Agent(settings, LocalData(data, data))
    agent._runner._worker = LightWorker(
        agent, BlobRef.model_validate_json((folder / name / "update.json").read_bytes())
    )
    return agent


def main() -> None:
    """Run them all to the end of one run."""
    url, folder, names = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    agents = [light(url, folder, name) for name in names]
    with ThreadPoolExecutor(len(agents)) as pool:
        list(pool.map(Agent.run, agents))


if __name__ == "__main__":
    main()
