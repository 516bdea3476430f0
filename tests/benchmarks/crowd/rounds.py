"""Rounds of all devices of a crowd, with the counts of the server's socket and of the devices."""

import itertools
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_server.transport.broker.launch import RunningBroker
from tests.benchmarks.crowd.orders import Crowd, Failed, child
from tests.benchmarks.processes import cpu_seconds

NAME = "bench"
FULL_MODEL_BYTES = 2 * 1_663_370
"""Encoded by default: half precision, except for some hundred numbers."""


@dataclass(frozen=True)
class Rounds:
    """Rounds of a federation: `seconds` of each but the first, counts of socket and devices.

    `others_cpu_s` is the processor time of broker and devices for each of these rounds.
    """

    seconds: tuple[float, ...]
    others_cpu_s: tuple[float, ...]
    sent: int
    counts: Counter[str]
    closed: tuple[Mapping[str, Any], ...]

    @property
    def lost(self) -> int:
        """The number of answers that did not count, in all rounds."""
        return (
            sum(len(round_["rejected"]) + round_["dropped"] for round_ in self.closed) + self.counts["lost"]
        )

    @property
    def cpu_s(self) -> tuple[float, ...]:
        """The server's processor time for each of these rounds."""
        return tuple(b["cpu_s"] - a["cpu_s"] for a, b in itertools.pairwise(self.closed))

    @property
    def egress(self) -> float:
        """The server's bytes over one full model per round and the control messages."""
        return self.sent / (len(self.closed) * FULL_MODEL_BYTES + self.counts["control bytes"])

    def down(self, tier: int) -> int:
        """Bytes sent to a device of this tier per round, frames included."""
        return self.counts[f"down {tier}"] // max(1, self.counts[f"tier {tier}"])

    def up(self, tier: int) -> int:
        """Bytes of the answer of a device of this tier."""
        return self.counts[f"up {tier}"] // max(1, self.counts[f"tier {tier}"])


async def federation(
    devices: Crowd, broker: RunningBroker, place: Path, *more: str, rounds: int = 2
) -> Rounds:
    """Run rounds with all connected devices."""
    await devices.counts()
    async with child("federation", *words(broker, place, devices.size, rounds), *more) as server:
        closed: list[Mapping[str, Any]] = []
        others: list[float] = []
        while (reported := await server.hear("closed", "ended"))["event"] == "closed":
            closed.append(reported)
            others.append(sum(map(cpu_seconds, [broker.pid, *(process.pid for process in devices.children)])))
    if len(closed) < rounds:
        raise Failed(f"{len(closed)} of {rounds} rounds: {reported}")
    counts = await devices.counts()
    seconds = tuple(b["at"] - a["at"] for a, b in itertools.pairwise(closed))
    used = tuple(b - a for a, b in itertools.pairwise(others))
    return Rounds(seconds, used, closed[-1]["sent"], counts, tuple(closed))


def words(broker: RunningBroker, place: Path, devices: int, rounds: int) -> list[str]:
    """The arguments of the server's process."""
    return [
        broker.url,
        str(Path(tempfile.mkdtemp(dir=place)) / "run"),
        f"federation.name={NAME}",
        f"num-clients={devices}",
        f"rounds={rounds}",
        "federation.deliver=none",
        "federation.replay-mb=0",
        "model.name=two-nn",
        "model.num-classes=10",
        "model.input-shape=[1, 28, 28]",
    ]
