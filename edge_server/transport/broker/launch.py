"""Run a broker while a `with` block lasts: Mosquitto if it is installed, else the embedded one."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemas.errors import ConfigError

Kind = Literal["auto", "mosquitto", "embedded"]

DIE_WITH_PARENT = "edge_server.transport.broker.die_with_parent"
HOST = "127.0.0.1"
READY_S = 15.0
STOP_S = 5.0
_ATTEMPTS = 3
_LOG_LINES = 8
# Distributions install mosquitto in sbin, which is not in a normal user's PATH.
_SBIN = ("/usr/sbin", "/usr/local/sbin")

_MOSQUITTO_CONF = """\
# Written by edge_server.transport.broker.launch at each start.
listener {port} {host}
allow_anonymous true
set_tcp_nodelay true
max_packet_size 1048576
max_inflight_messages 20
max_queued_messages 10000
max_queued_bytes 67108864
persistence false
log_dest file {log}
log_type error
log_type warning
log_type notice
"""


@dataclass(frozen=True, slots=True)
class RunningBroker:
    """A broker that accepts connections; `pid` is the broker's own process."""

    kind: Literal["mosquitto", "embedded"]
    host: str
    port: int
    pid: int

    @property
    def url(self) -> str:
        """Where clients connect, as mqtt://host:port."""
        return f"mqtt://{self.host}:{self.port}"


@contextlib.contextmanager
def running_broker(kind: Kind, directory: Path, *, port: int = 0) -> Iterator[RunningBroker]:
    """Run a broker on loopback while the block lasts; its configuration and log lie in `directory`.

    `auto` takes Mosquitto if it is installed. Port 0 takes a free port. ConfigError if no broker starts.
    """
    binary = find_mosquitto() if kind != "embedded" else None
    if kind == "mosquitto" and binary is None:
        raise ConfigError(
            f"no mosquitto on PATH nor in {', '.join(_SBIN)}", remedy="install it, or use 'embedded'"
        )
    chosen: Literal["mosquitto", "embedded"] = "mosquitto" if binary else "embedded"
    directory.mkdir(parents=True, exist_ok=True)
    child, bound = _start(binary, directory.resolve(), port)
    try:
        yield RunningBroker(chosen, HOST, bound, child.pid)
    finally:
        _stop(child)


def find_mosquitto() -> str | None:
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_SBIN))
    return shutil.which("mosquitto", path=path)


def _start(
    binary: str | None, directory: Path, port: int, attempts: int = _ATTEMPTS
) -> tuple[subprocess.Popen[bytes], int]:
    """Return a broker that accepts connections, and its port; tries again if a free port was taken."""
    bound = port or free_port()
    _check_free(bound)
    log = directory / "broker.log"
    log.write_bytes(b"")
    if binary:
        command = _mosquitto(binary, directory, log, bound)
    else:
        module = "edge_server.transport.broker"
        command = [sys.executable, "-m", module, "--host", HOST, "--port", str(bound)]
    child = _spawn(command, log)
    try:
        _await_ready(child, command, log, bound)
    except BaseException as error:
        _stop(child)
        if port or attempts == 1 or not isinstance(error, ConfigError):
            raise
        return _start(binary, directory, port, attempts - 1)
    return child, bound


def free_port() -> int:
    """A port of this machine that nothing listens at."""
    with socket.create_server((HOST, 0)) as probe:
        bound: int = probe.getsockname()[1]
        return bound


def _check_free(port: int) -> None:
    # Otherwise another listener on that port would be mistaken for the new broker.
    try:
        socket.create_server((HOST, port)).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(f"cannot use port {port} on {HOST}: {error}") from error


def _mosquitto(binary: str, directory: Path, log: Path, port: int) -> list[str]:
    text = _MOSQUITTO_CONF.format(port=port, host=HOST, log=log)
    if os.geteuid() == 0:
        # As root it would become user mosquitto, who may not write in `directory`.
        text += "user root\n"
    configuration = directory / "mosquitto.conf"
    configuration.write_text(text)
    return [binary, "-c", str(configuration)]


def _spawn(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    """Start `command` so that it dies with this process, whichever thread called this."""
    started: list[subprocess.Popen[bytes] | OSError] = []
    ready = threading.Event()

    def own() -> None:
        # Linux ends the child with the thread that forked it, so this thread waits for the child.
        try:
            with log.open("ab") as output:
                child = subprocess.Popen(
                    [sys.executable, "-m", DIE_WITH_PARENT, str(os.getpid()), *command],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                )
        except OSError as error:
            started.append(error)
            ready.set()
            return
        started.append(child)
        ready.set()
        child.wait()

    threading.Thread(target=own, name="broker-owner", daemon=True).start()
    ready.wait()
    if isinstance(started[0], OSError):
        raise ConfigError(f"cannot start {command[0]}: {started[0]}")
    return started[0]


def _await_ready(child: subprocess.Popen[bytes], command: list[str], log: Path, port: int) -> None:
    """Return once the broker accepts a connection; ConfigError if it ends or does not in time."""
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
            if child.poll() is None:
                return
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=0.02)
            raise ConfigError(_failure(f"ended with code {child.returncode}", command, log))
    raise ConfigError(_failure(f"accepts no connection after {READY_S:.0f} s", command, log))


def _failure(what: str, command: list[str], log: Path) -> str:
    last = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    lines = "".join(f"\n  {line}" for line in last) or " nothing"
    return f"the broker {what}: {' '.join(command)}\nits log {log} says:{lines}"


def _stop(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(STOP_S)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
