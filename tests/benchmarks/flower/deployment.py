"""Flower as its documentation deploys it: a SuperLink, ten SuperNodes, `flwr run`, each a process.

ServerApp and ClientApps are subprocesses of SuperLink and SuperNodes (isolation mode `subprocess`, the
default). TLS, telemetry, the search for updates, and the installation of the app's dependencies at run time,
which are already installed, are switched off. The SuperNodes connect to the SuperLink through a relay that
counts bytes.
"""

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from edge_server.transport.broker.launch import free_port
from tests.benchmarks.federation import DEVICES, Work
from tests.benchmarks.flower.environment import Environment
from tests.benchmarks.processes import Started, processes
from tests.benchmarks.resident import Watch
from tests.benchmarks.wire import Relay, relay

APP = Path(__file__).with_name("app")
LIMIT_S = 300.0
QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "OMP_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Mark:
    """The ServerApp reached a point of a round at `at` seconds since 1970."""

    what: str
    round: int
    at: float


@dataclass(frozen=True)
class Rounds:
    """The result of a `flwr run`; `egress` is the number of bytes that the SuperLink sent per round."""

    marks: Sequence[Mark]
    egress: float

    def at(self, what: str, number: int) -> float:
        """When the round reached that point."""
        return next(mark.at for mark in self.marks if mark.round == number and mark.what.startswith(what))

    @property
    def last(self) -> int:
        """The number of the last round."""
        return max(mark.round for mark in self.marks)

    @property
    def round_s(self) -> list[float]:
        """Seconds from the end of each round to the end of the next."""
        ends = [self.at("closed", number) for number in range(1, self.last + 1)]
        return [after - before for before, after in pairwise(ends)]


@dataclass(frozen=True)
class Deployment:
    """Running SuperLink and SuperNodes; `launched` is when the first of them was started."""

    environment: Environment
    folder: Path
    port: int
    wire: Relay
    started: Started
    launched: float

    def run(self, name: str, work: Work, data: Path) -> Rounds:
        """Run `flwr run` to its end; raises `RuntimeError` if it fails or takes too long."""
        marks = self.folder / f"{name}.jsonl"
        config = {
            "num-server-rounds": work.rounds,
            "nodes": DEVICES,
            "network": work.network.rpartition(":")[2],
            "local-epochs": 1,
            "data": str(data),
            "marks": str(marks),
        }
        words = " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
        flwr = [self.environment.program("flwr"), "run", str(APP), "bench", "--run-config", words]
        home = {"FLWR_HOME": str(self.folder / "home")}
        self._until_listening()
        self.started.start(f"flwr {name}", flwr, log=self.folder / f"{name}.log", env={**QUIET, **home})
        return self._until_ended(marks, work)

    def watch(self) -> Watch:
        """Watch the memory of the first SuperNode and its descendants."""
        return Watch(self.started.all["supernode 0"].pid)

    def _until_listening(self) -> None:
        """Wait for the SuperLink, since `flwr run` does not."""
        until = time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            self.started.check()
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            self.started.wait("superlink", 0.05)
        raise RuntimeError(f"the SuperLink does not listen after {LIMIT_S:.0f} s")

    def _until_ended(self, path: Path, work: Work) -> Rounds:
        until = time.monotonic() + LIMIT_S
        while True:
            marks = read_marks(path)
            if any(mark.what == "ended" for mark in marks):
                break
            ended = self.started.wait("superlink", 0.1)
            self.started.check()
            if ended or time.monotonic() > until:
                raise RuntimeError(f"not done in {LIMIT_S:.0f} s at most; {self.folder} has the logs")
        wrong = [mark.what for mark in marks if mark.what.startswith("closed") and mark.what != ALL]
        if wrong:
            raise RuntimeError(f"incomplete rounds: {', '.join(wrong)}")
        rounds = Rounds([mark for mark in marks if mark.round], 0.0)
        sent = self.wire.back.between(rounds.at("closed", 1), rounds.at("closed", work.rounds))
        return Rounds(rounds.marks, sent / max(1, work.rounds - 1))


ALL = f"closed with {DEVICES}"


@contextlib.contextmanager
def deployment(environment: Environment, folder: Path) -> Iterator[Deployment]:
    """Run a SuperLink with its SuperNodes for the duration of the block."""
    port, home = free_port(), folder / "home"
    home.mkdir(parents=True)
    config = f'[superlink]\ndefault = "bench"\n\n[superlink.bench]\naddress = "127.0.0.1:{port}"\n'
    (home / "config.toml").write_text(config + "insecure = true\n")
    launched = time.time()
    with relay(("127.0.0.1", port)) as wire, processes() as started:
        superlink = [environment.program("flower-superlink"), "--insecure", "--port", str(port)]
        env = {**QUIET, "FLWR_HOME": str(home), "PATH": _path(environment)}
        command = [*superlink, "--disable-runtime-dependency-installation"]
        started.start("superlink", command, log=folder / "superlink.log", env=env)
        for index in range(DEVICES):
            started.start(
                f"supernode {index}",
                _supernode(environment, wire.port, index),
                log=folder / f"supernode-{index}.log",
                env=env,
            )
        yield Deployment(environment, folder, port, wire, started, launched)


def read_marks(path: Path) -> list[Mark]:
    """The marks that the ServerApp has written so far."""
    lines = path.read_text().splitlines() if path.exists() else []
    reported = [json.loads(line) for line in lines if line.endswith("}")]
    return [Mark(mark["what"], mark["round"], mark["at"]) for mark in reported]


def _supernode(environment: Environment, port: int, index: int) -> list[str]:
    words = {
        "--superlink": f"127.0.0.1:{port}",
        "--port": str(free_port()),
        "--node-config": f"partition-id={index} num-partitions={DEVICES}",
    }
    options = [word for pair in words.items() for word in pair]
    return [environment.program("flower-supernode"), "--insecure", *options]


def _path(environment: Environment) -> str:
    """The search path: SuperLink and SuperNodes start Flower's commands by name."""
    rest = os.environ.get("PATH", "")
    return f"{environment.folder / 'bin'}:{rest}"
