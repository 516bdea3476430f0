"""A server and its standby, as processes that take each other for processes of another machine."""

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.processes import DEADLINE_S, FEDERATION, Processes, end
from tests.forked import ForkedCommand, start_forked


@dataclass(frozen=True)
class ServerProcess:
    """A process of `edge-server`, its run folder, its log, the name of its relay."""

    process: ForkedCommand
    folder: Path
    log: Path
    link: str

    @property
    def said(self) -> str:
        """Its log so far."""
        with contextlib.suppress(FileNotFoundError):
            return self.log.read_text(errors="replace")
        return ""

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()

    def stop(self) -> None:
        """SIGSTOP."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.process.send_signal(signal.SIGCONT)

    def ended(self, timeout_s: float) -> bool:
        """Whether it has ended; waits up to `timeout_s` seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout_s)
        return self.process.returncode is not None


class TwoServers(Processes):
    """Broker, devices, an active server and a standby; each server has a run folder of its own."""

    def __init__(self, folder: Path, *, rounds: int, devices: int, network: str) -> None:
        super().__init__(folder, rounds=rounds, devices=devices, persistent=True, network=network)
        self._count = 0
        self._servers: list[ServerProcess] = []
        self.devices: dict[str, ForkedCommand] = {}

    def start_active(self) -> None:
        """Start the first server."""
        words = [*self.run_words(), "--out", str(self._next_folder())]
        self.active = self._start(words)

    def start_devices(self) -> None:
        """Start all devices."""
        self.devices = {device: self._spawn_device(device) for device in self.ports}

    def start_standby(self) -> ServerProcess:
        """Start a standby of the active server, with the server's signing key."""
        folder = self._next_folder()
        folder.mkdir()
        shutil.copy(self.active.folder / "signing.key", folder / "signing.key")
        self.standby = self._start(["standby", str(folder), "--of", FEDERATION])
        return self.standby

    def promote(self) -> None:
        """The standby is the active server now."""
        self.active = self.standby

    @property
    def over(self) -> bool:
        """Whether the run has ended at the active server."""
        ended = self.active.ended(0.0)
        done = (self.active.folder / "summary.json").exists()
        assert not ended or done, f"the server has failed: {self.active.said[-3000:]}"
        return ended

    @property
    def folders(self) -> list[Path]:
        """The run folder of every server so far."""
        return [server.folder for server in self._servers]

    def close(self) -> None:
        """End the remaining processes."""
        for process in (*(server.process for server in self._servers), *self.devices.values()):
            end(process)
        self.broker.kill()
        self.broker.wait()
        self.links.close()

    def _next_folder(self) -> Path:
        self._count += 1
        return self.folder / f"server-{self._count}"

    def _start(self, words: list[str]) -> ServerProcess:
        name = f"server-{self._count}"
        log, port = self.folder / f"{name}.log", self.links.port(name)
        argv = [*words, "--broker", f"mqtt://127.0.0.1:{port}", "--format", "json", "--log-level", "info"]
        process = start_forked("edge-server", *argv, log=log, own_pids=True)
        server = ServerProcess(process, self.folder / name, log, name)
        self._servers.append(server)
        return server


def await_true(wait: Callable[[], bool], what: str) -> None:
    """Repeat a short wait until it succeeds; an `AssertionError` with `what` after the deadline."""
    until = time.monotonic() + DEADLINE_S
    while not wait():
        assert time.monotonic() < until, what
