"""A real federation on loopback: broker, `edge-server run` and ten `edge-client run`, each a process.

The times come from the journal: a planning is written just before its tasks are sent, and a round's row when
its model is on disk. The time from the end of one round to the end of the next covers the whole round:
planning, sending, training, checking, aggregating, writing.
"""

import contextlib
import sqlite3
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge_server.transport.broker.launch import RunningBroker, running_broker
from tests.benchmarks.client_data import IMAGES
from tests.benchmarks.processes import Started, cpu_seconds, processes
from tests.benchmarks.resident import family_peaks
from tests.benchmarks.wire import Relay, relay

DEVICES = 10
LARGE = "tests.benchmarks.networks:large"
LIMIT_S = 240.0
ONE_THREAD = {"OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Work:
    """The work of the devices: a network, and an epoch of SGD on `images` images each, batch 32.

    A single image is the least that changes the model: a model that the devices already have would not be
    sent. Models and updates use the default codecs (half precision; few levels, packed), or, with `exact`,
    float32.
    """

    network: str = "two-nn"
    images: int = IMAGES
    rounds: int = 4
    exact: bool = False

    @property
    def words(self) -> list[str]:
        """The federation's settings; the server has no data, so no model is tested."""
        return [
            "federation.name=bench",
            f"rounds={self.rounds}",
            "deliver=none",
            f'model.name="{self.network}"',
            "model.input-shape=[1, 28, 28]",
            "model.num-classes=10",
            f"num-clients={DEVICES}",
            "tiers.ratios=[0.0]",
            "training.optimizer=sgd",
            "learning-rate=0.01",
            "batch-size=32",
            "local-epochs=1",
            *(["strategy.uplink=[]", "strategy.downlink=[]"] if self.exact else []),
        ]


@dataclass(frozen=True)
class Timings:
    """A run: seconds since 1970 at which tasks were ready and rounds closed, by round; bytes; processor time.

    `egress` is the number of bytes that the server's socket sent per round, `cpu_s` the processor seconds per
    round by kind of process, `memory_mb` the memory of a device and of the server in the last round.
    """

    launched: float
    tasks: Mapping[int, float]
    closed: Mapping[int, float]
    egress: float = 0.0
    cpu_s: Mapping[str, float] = field(default_factory=dict)
    memory_mb: Mapping[str, float] = field(default_factory=dict)

    @property
    def round_s(self) -> list[float]:
        """Seconds from the end of each round to the end of the next; the first round is left out."""
        return [self.closed[number] - self.closed[number - 1] for number in sorted(self.closed)[1:]]

    @property
    def cpu(self) -> str:
        """The processor time as text."""
        return ", ".join(f"{kind} {seconds:.2f}" for kind, seconds in self.cpu_s.items()) or "not taken"


def run(work: Work, data: Path, folder: Path) -> Timings:
    """Run a federation to its end; raises `RuntimeError` if it fails or takes too long."""
    launched = time.time()
    with (
        running_broker("auto", folder / "broker") as broker,
        relay((broker.host, broker.port)) as wire,
        processes() as started,
    ):
        # Count the bytes between server and broker.
        command = server(work, folder, f"mqtt://127.0.0.1:{wire.port}")
        started.start("server", command, log=folder / "server.log", env=ONE_THREAD)
        for index in range(DEVICES):
            command = device(work, data, folder, broker.url, index)
            started.start(f"device {index}", command, log=folder / f"device-{index}.log", env=ONE_THREAD)
        return _watched(work, launched, folder / "run", broker, started, wire)


def server(work: Work, folder: Path, broker: str) -> list[str]:
    """The command of the server."""
    program = [sys.executable, "-m", "edge_server.cli.main", "run", "fedavg", *work.words]
    return [*program, "--broker", broker, "--out", str(folder / "run"), "--format", "json"]


def device(work: Work, data: Path, folder: Path, broker: str, index: int) -> list[str]:
    """The command of one device: it trains on all of its data, so none is left for evaluation."""
    words = {
        "--broker": broker,
        "--federation": "bench",
        "--device-id": f"device-{index}",
        "--data": f"npz:{data / f'client-{index}.npz'}",
        "--hold-out": "0",
        "--tier": "1",
        "--threads": "1",
        "--state-dir": str(folder / f"state-{index}"),
    }
    if ":" in work.network:
        words["--model-code"] = work.network
    program = [sys.executable, "-m", "edge_client.cli.main", "run", "--once"]
    return [*program, *(word for pair in words.items() for word in pair)]


def _watched(
    work: Work, launched: float, out: Path, broker: RunningBroker, started: Started, wire: Relay
) -> Timings:
    """Read the journal until the last round is closed."""
    used: dict[int, dict[str, float]] = {}
    memory: dict[str, float] = {}
    until = time.monotonic() + LIMIT_S
    tasks, closed = dict[int, float](), dict[int, float]()
    while len(closed) < work.rounds:
        ended = started.wait("server", 0.05)
        started.check()
        tasks, closed = journal(out / "journal.sqlite")
        if len(closed) < work.rounds and (ended or time.monotonic() > until):
            raise RuntimeError(f"{len(closed)} of {work.rounds} rounds in {LIMIT_S:.0f} s at most")
        if len(closed) in (1, work.rounds - 1) and len(closed) not in used:
            used[len(closed)] = _used(started, broker)
        if len(closed) >= work.rounds - 1 and not memory:
            memory = _memory(started)
    first, last = closed[1], closed[work.rounds]
    before, after = used.get(1, {}), used.get(work.rounds - 1, {}) if work.rounds > 2 else {}
    return Timings(
        launched,
        tasks,
        closed,
        egress=wire.towards.between(first, last) / max(1, work.rounds - 1),
        cpu_s={kind: (after[kind] - before.get(kind, 0.0)) / (work.rounds - 2) for kind in after},
        memory_mb=memory,
    )


def journal(path: Path) -> tuple[dict[int, float], dict[int, float]]:
    """When the tasks of each round were ready, and when it was closed."""
    if not path.exists():
        return {}, {}
    with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        try:
            planned = connection.execute("SELECT round, MAX(planned_at) FROM plannings GROUP BY round")
            closed = connection.execute("SELECT round, closed_at FROM rounds")
            return dict(planned.fetchall()), dict(closed.fetchall())
        except sqlite3.OperationalError:
            # The journal is being created.
            return {}, {}


def _used(started: Started, broker: RunningBroker) -> dict[str, float]:
    seconds = started.cpu_seconds()
    devices = sum(taken for name, taken in seconds.items() if name.startswith("device"))
    return {"server": seconds.get("server", 0.0), "devices": devices, "broker": cpu_seconds(broker.pid)}


def _memory(started: Started) -> dict[str, float]:
    devices = [
        sum(family_peaks(process.pid).values()) for name, process in started.all.items() if name != "server"
    ]
    return {
        "device": sum(devices) / len(devices),
        "server": sum(family_peaks(started.all["server"].pid).values()),
    }
