"""What systemd hears of a service: that it is ready, that its loop still goes round, that it ends.

The protocol of sd_notify(3): datagrams to the socket in `NOTIFY_SOCKET`. `WATCHDOG_USEC` says how soon the
next sign of life is due; without either nothing is sent. A loop that hangs sends nothing, and is restarted.
Where there is no systemd, as in a container, `EDGE_HEARTBEAT` names a file that is touched instead.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

SIGNS_PER_DEADLINE = 3
"""One that comes late, or is lost because systemd is busy, costs nothing."""
HEARTBEAT_S = 30.0
"""The deadline where a file is named and systemd states none: a check may take twice that for dead."""


@dataclass
class Watchdog:
    """`address` as in `NOTIFY_SOCKET` (a path, or `@name`), `deadline_s` between signs, `file` to touch."""

    address: str = ""
    deadline_s: float | None = None
    file: str = ""
    _due: float = field(default=0.0, init=False)

    def ready(self) -> None:
        """The service works, whether or not it has a connection yet: a broker may be away for hours."""
        self._send(b"READY=1")

    def alive(self, now: float) -> None:
        """The loop has come round at `now`, in seconds; costs nothing until a sign is due."""
        if self.deadline_s is not None and now >= self._due:
            self._due = now + self.deadline_s / SIGNS_PER_DEADLINE
            self._send(b"WATCHDOG=1")
            self._touch()

    def stopping(self) -> None:
        """The end has begun: no more signs of life are due."""
        self.deadline_s = None
        self._send(b"STOPPING=1")

    def _send(self, words: bytes) -> None:
        """Who listens may be gone, or slow: that must never stop the service."""
        if not self.address:
            return
        where = f"\0{self.address[1:]}" if self.address.startswith("@") else self.address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(words, where)

    def _touch(self) -> None:
        if self.file:
            with contextlib.suppress(OSError):
                Path(self.file).touch()


def watchdog_of(environment: Mapping[str, str], *, pid: int | None = None) -> Watchdog:
    """The watchdog that this process was started under; `WATCHDOG_PID` may say that it is another's."""
    address, file = environment.get("NOTIFY_SOCKET", ""), environment.get("EDGE_HEARTBEAT", "")
    if not address.startswith(("/", "@")):
        return Watchdog(deadline_s=HEARTBEAT_S if file else None, file=file)
    mine = environment.get("WATCHDOG_PID", "") in ("", str(os.getpid() if pid is None else pid))
    micros = environment.get("WATCHDOG_USEC", "")
    due = int(micros) / 1e6 if mine and micros.isascii() and micros.isdigit() else 0.0
    return Watchdog(address, due or (HEARTBEAT_S if file else None), file)
