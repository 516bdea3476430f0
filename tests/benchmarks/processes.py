"""Processes that a benchmark starts; they end with the block, each by its own id, also on Ctrl-C."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

STOP_S = 8.0


class Started:
    """The processes of a block; each leads its own process group, to which its children belong."""

    def __init__(self) -> None:
        self.all: dict[str, subprocess.Popen[bytes]] = {}

    def start(
        self, name: str, command: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process with its output in `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )
        self.all[name] = process
        return process

    def end(self) -> None:
        """Terminate all processes, wait, then kill their groups."""
        for process in self.all.values():
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        until = time.monotonic() + STOP_S
        for process in self.all.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, until - time.monotonic()))
            # Its children may outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def wait(self, name: str, seconds: float) -> bool:
        """Wait at most `seconds` for a process to end; return whether it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.all[name].wait(seconds)
        return self.all[name].poll() is not None

    def check(self) -> None:
        """Raise `RuntimeError` if a process has failed."""
        for name, process in self.all.items():
            if process.poll():
                raise RuntimeError(f"{name} has ended with {process.returncode}: {process.args!r}")

    def cpu_seconds(self) -> dict[str, float]:
        """Processor time so far of each running process, without its children."""
        running = {name: process.pid for name, process in self.all.items() if process.poll() is None}
        return {name: cpu_seconds(pid) for name, pid in running.items()}


@contextlib.contextmanager
def processes() -> Iterator[Started]:
    """Manage processes that end with the block."""
    started = Started()
    try:
        yield started
    finally:
        started.end()


def cpu_seconds(pid: int) -> float:
    """Processor time that a process has used, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
