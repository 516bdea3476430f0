"""Signals to systemd that a service is ready, that its loop runs, and that it ends.

The protocol of sd_notify(3): datagrams to the socket in `NOTIFY_SOCKET`. `WATCHDOG_USEC` is the interval in
which systemd expects a signal; without the variables nothing is sent. A service whose loop hangs sends
nothing and is restarted. Without systemd, as in a container, the file named by `EDGE_HEARTBEAT` is touched
instead.
"""

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SIGNS_PER_DEADLINE = 3  # signals per interval, so that a late or lost one does no harm
HEARTBEAT_S = 30.0  # the interval for a file without systemd; a health check may wait twice as long


@dataclass
class Watchdog:
    """`address` as in `NOTIFY_SOCKET` (a path, or `@name`), `deadline_s` the interval, `file` to touch."""

    address: str = ""
    deadline_s: float | None = None
    file: str = ""
    _due: float = field(default=0.0, init=False)

    def ready(self) -> None:
        """The service works, with or without a connection, since a broker may be unreachable for hours."""
        self._send(b"READY=1")

    def alive(self, now: float) -> None:
        """The loop runs at `now`, in seconds; does nothing until a signal is due."""
        if self.deadline_s is not None and now >= self._due:
            self._due = now + self.deadline_s / SIGNS_PER_DEADLINE
            self._send(b"WATCHDOG=1")
            if self.file:
                with contextlib.suppress(OSError):
                    Path(self.file).touch()

    def stopping(self) -> None:
        """The service ends: no more signals are expected."""
        self.deadline_s = None
        self._send(b"STOPPING=1")

    def _send(self, words: bytes) -> None:
        """Send without blocking: a receiver that is gone or slow must not stop the service."""
        if not self.address:
            return
        where = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(words, where)


def watchdog_of(environment: Mapping[str, str], *, pid: int | None = None) -> Watchdog:
    """The watchdog of this process; `WATCHDOG_PID` may name another process."""
    address, file = environment.get("NOTIFY_SOCKET", ""), environment.get("EDGE_HEARTBEAT", "")
    if not address.startswith(("/", "@")):
        return Watchdog(deadline_s=HEARTBEAT_S if file else None, file=file)
    mine = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
    micros = environment.get("WATCHDOG_USEC", "")
    due = int(micros) / 1e6 if mine and micros.isascii() and micros.isdigit() else 0.0
    return Watchdog(address, due or (HEARTBEAT_S if file else None), file)
