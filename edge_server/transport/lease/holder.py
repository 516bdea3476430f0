"""This process as the holder of a lease, and whether another holder on this machine still runs."""

import os
import secrets
import socket
import time
from contextlib import suppress
from pathlib import Path

from schemas.messages import LeaseHolder

PROC = Path("/proc")


def this_process(folder: Path) -> LeaseHolder:
    """This process, which serves the run folder `folder`."""
    return LeaseHolder(
        instance=secrets.token_hex(8),
        host=socket.gethostname()[:500],
        machine=_machine(),
        pid=os.getpid(),
        ticks=_read_start_ticks(os.getpid()) or 0,
        folder=str(folder.resolve())[:500],
        since=time.time(),
    )


def runs_here(holder: LeaseHolder) -> bool | None:
    """Whether the holder's process runs on this machine; None if it is on another one, or unknown."""
    if not holder.machine or holder.machine != _machine():
        return None
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        # Another user's process, which may be hidden from this one.
        return True
    return _read_start_ticks(holder.pid) == holder.ticks


def in_words(holder: LeaseHolder) -> str:
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(holder.since))
    return f"host {holder.host}, process {holder.pid}, run folder {holder.folder}, since {since}"


def _machine() -> str:
    """The boot of this machine and the namespace of its process ids; empty if they cannot be read."""
    with suppress(OSError):
        boot = (PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(PROC / 'self/ns/pid').readlink()}"
    return ""


def _read_start_ticks(pid: int) -> int | None:
    """When a process started, in ticks since the boot; None if there is none, or it has ended."""
    try:
        # The name, in parentheses, may contain anything.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])
