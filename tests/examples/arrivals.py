"""Classes that arrive over time, in simulation and over a broker: rounds by drift beside rounds by the clock.

Four devices of four tiers gather pictures of clothes; every two minutes each gets many pictures of kinds that
no device has had before. Accuracy is that of the whole model on the classes that have arrived, averaged over
the time of the run.
"""

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.agent.local_source import DataChoice, DriftMonitor, LocalSource
from edge_client.data.dataset import LabelledData, sample
from edge_client.data.sources import load_source
from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.config.load import load_config
from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.simulator import simulate
from edge_server.storage.records import RoundRecord
from edge_server.transport.broker.launch import running_broker
from schemas.values import CapabilityProfile
from tests.edge_server.simulation.small import Quiet
from tests.integration.conftest import Run

PHASES = (range(6), range(6, 8), range(8, 10))
"""The classes that arrive in each phase."""
PHASE_S, STEP_S = 120.0, 2.0
FIRST_ROUND_S = 120.0
PER_CLASS, PER_STEP = 70, 4
"""Pictures of a device of each class that arrives, and how many of all known classes come in each step."""
TIERS = (1, 3, 4, 5)
OPENINGS: Mapping[str, Mapping[str, object]] = {
    "the clock": {"when": "every-s", "every-s": 10.0},
    "drift": {"when": "drift", "drifting": 2},
}
SETTINGS = {
    "federation.name": "arrivals",
    "federation.rounds": 0,
    "federation.first-rounds": 9,
    "federation.rounds-per-opening": 3,
    "num-clients": len(TIERS),
    "model.name": "mlp",
    "training.optimizer": "adam",
    "training.learning-rate": 0.001,
    "training.warm-up-steps": 0,
    "training.local-epochs": 2,
    "training.batch-size": 32,
}
SIMULATED = {
    "data.source": "FashionMNIST",
    "data.samples-per-client": 700,
    "data.partition": "iid",
    "data.test-samples": 2000,
    "simulation.hold-out": 0.2,
    "simulation.arrives-s": "{6=120, 7=120, 8=240, 9=240}",
    "simulation.until-s": 360,
}
"""A device has about 70 examples of each class, as over the broker."""


def simulated_arrivals(data: Path, folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """The figures of `arrivals` with virtual devices, which have each class's examples at once."""
    for name, opening in OPENINGS.items():
        opened = {f"federation.{key}": value for key, value in opening.items()}
        settings = {**SETTINGS, **SIMULATED, **opened, "data.data-root": data, "federation.seed": seed}
        config = load_config("attending", [f"{key}={value}" for key, value in settings.items()])
        out, course = folder / name.replace(" ", "-"), Course()
        simulate(config, out=out, watcher=Quiet(), export=False)
        for line in (out / "history.jsonl").read_text().splitlines():
            record = RoundRecord.model_validate_json(line)
            assert record.virtual_time_s is not None
            course.rounds.append((record.virtual_time_s, tuple(record.test_by_output.values())))
            course.megabytes += (record.uplink_bytes + record.downlink_bytes) / 1e6
        yield from course.figures(f"arrivals, simulated, rounds by {name}", begun=course.rounds[0][0])


def arrivals(data: Path, folder: Path, seed: int) -> Iterator[tuple[str, float]]:
    """Accuracy over time and at the end, rounds, and megabytes over all links, for each opening of rounds."""
    for name, opening in OPENINGS.items():
        place = folder / name.replace(" ", "-")
        with running_broker("mosquitto", place / "broker") as broker:
            seen = _Seen()
            _run(data, place, seed, opening, broker.url, seen)
        yield from seen.figures(f"arrivals, rounds by {name}")


class Course:
    """The recall of each class after each round, by time, and the megabytes over all links."""

    def __init__(self) -> None:
        self.rounds: list[tuple[float, Sequence[float]]] = []
        self.megabytes = 0.0

    def at(self, moment: float) -> float:
        """Accuracy of the model of this moment on the classes that have arrived."""
        recalls = [found for closed, found in self.rounds if closed <= moment][-1]
        return float(np.mean([recalls[k] for k in _arrived(moment)]))

    def figures(self, name: str, begun: float = 0.0) -> Iterator[tuple[str, float]]:
        """The table's rows, from the first model on."""
        end = len(PHASES) * PHASE_S
        over_time = float(np.mean([self.at(moment) for moment in np.arange(np.ceil(begun), end)]))
        yield f"{name}: accuracy over time", over_time
        yield f"{name}: accuracy at the end", self.at(end - 1)
        yield f"{name}: rounds", len(self.rounds)
        yield f"{name}: MB", self.megabytes


class _Seen(Course):
    """What a run over a broker shows."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0.0
        self.first = threading.Event()

    def show(self, snapshot: Snapshot) -> None:
        """Take the figures of a snapshot."""
        if len(snapshot.history) > len(self.rounds):
            now = time.monotonic()
            self.begun = self.begun or now
            self.rounds.append((now - self.begun, tuple(snapshot.history[-1].test_by_output.values())))
            self.first.set()
        over_links = sum(view.downlink_bytes + view.uplink_bytes for view in snapshot.devices)
        self.megabytes = max(self.megabytes, over_links / 1e6)


def _arrived(moment: float) -> list[int]:
    """The classes that have begun to arrive, seconds after the first round."""
    return [k for phase in PHASES[: 1 + int(moment // PHASE_S)] for k in phase]


def _run(data: Path, folder: Path, seed: int, opening: Mapping[str, object], url: str, seen: _Seen) -> None:
    test = sample(load_source("FashionMNIST", data_root=data, split="test"), 2000)
    np.savez(folder / "test.npz", images=test.images, labels=test.labels)
    opened = {f"federation.{key}": value for key, value in opening.items()}
    settings = {**SETTINGS, **opened, "federation.seed": seed, "data.source": f"npz:{folder / 'test.npz'}"}
    config = load_config("attending", [f"{key}={value}" for key, value in settings.items()])
    pictures = load_source("FashionMNIST", data_root=data, split="train")
    boards = [_Board(folder / f"pi-{index}", pictures, seed * 10 + index) for index in range(len(TIERS))]
    address = parse_address(url)
    run = Run(config, address, folder / "run", watcher=seen)
    agents = [board.agent(address, tier) for board, tier in zip(boards, TIERS, strict=True)]
    with ThreadPoolExecutor(len(agents)) as pool:
        for agent in agents:
            pool.submit(agent.run)
        try:
            assert seen.first.wait(FIRST_ROUND_S)
            for step in range(1, int(len(PHASES) * PHASE_S / STEP_S)):
                # Pictures arrive by the clock: the example is about time.
                time.sleep(max(0.0, seen.begun + step * STEP_S - time.monotonic()))
                for board in boards:
                    board.gather(step * STEP_S)
        finally:
            for agent in agents:
                agent.stop()
            run.stop()


class _Board:
    """A device whose pictures grow."""

    def __init__(self, folder: Path, pictures: LabelledData, seed: int) -> None:
        self._folder, self._pictures = folder, pictures
        self._random = np.random.default_rng(seed)
        self._mine = np.zeros(0, np.int64)
        folder.mkdir(parents=True)
        self._classes: list[int] = []
        self.gather(0.0)

    def gather(self, moment: float) -> None:
        """Save the pictures so far and those of this moment; a reader sees all or none of them."""
        new = [k for k in _arrived(moment) if k not in self._classes]
        self._classes += new
        chosen = [(new, PER_CLASS * len(new)), (self._classes, PER_STEP)]
        for classes, count in chosen:
            fitting = np.flatnonzero(np.isin(self._pictures.labels, classes))
            self._mine = np.append(self._mine, self._random.choice(fitting, count if classes else 0))
        mine = self._pictures.subset(self._mine)
        np.savez(self._folder / "next.npz", images=mine.images, labels=mine.labels)
        (self._folder / "next.npz").replace(self._folder / "pictures.npz")

    def agent(self, address: BrokerAddress, tier: int) -> Agent:
        """The device's client, which looks at its pictures every second."""
        source, state = f"npz:{self._folder / 'pictures.npz'}", self._folder / "state"
        state.mkdir()
        settings = AgentSettings(
            "arrivals",
            self._folder.name,
            address,
            state,
            source,
            CapabilityProfile(tier=tier, trainers=("torch",)),
            threads=1,
            watch_data_s=1.0,
        )
        feed = LocalSource(
            DataChoice(source), record=state / "examples", drift=DriftMonitor(state / "models")
        )
        return Agent(settings, feed.read(), feed=feed)
