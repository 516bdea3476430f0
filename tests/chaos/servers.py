"""A server and its standby, as processes that take each other for processes of another machine."""

import contextlib
import os
import select
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.fork_server import ForkServer
from tests.chaos.processes import DEADLINE_S, FEDERATION, Processes


@dataclass(frozen=True)
class ServerProcess:
    """A process of `edge-server`, its run folder, its log, the name of its relay."""

    pid: int
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
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def ended(self, timeout_s: float) -> bool:
        """Whether it has ended; waits up to `timeout_s` seconds."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            return bool(select.select([descriptor], [], [], timeout_s)[0])
        finally:
            os.close(descriptor)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


class TwoServers(Processes):
    """Broker, devices, an active server and a standby; each server has a run folder of its own."""

    def __init__(self, folder: Path, fork_server: ForkServer, *, rounds: int) -> None:
        super().__init__(folder, fork_server, rounds=rounds, persistent=True)
        self._count = 0
        self._servers: list[ServerProcess] = []
        self.devices: dict[str, int] = {}

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
        for server in self._servers:
            server.kill()
        for pid in self.devices.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
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
        server = ServerProcess(self._fork_server.server(argv, log), self.folder / name, log, name)
        self._servers.append(server)
        return server


def await_true(wait: Callable[[], bool], what: str) -> None:
    """Repeat a short wait until it succeeds; an `AssertionError` with `what` after the deadline."""
    until = time.monotonic() + DEADLINE_S
    while not wait():
        assert time.monotonic() < until, what
