"""The audit log: who changed what, in a file to which lines are only appended.

Each line contains the digest of the line before it, so that a line that was changed or removed later shows.
"""

import fcntl
import getpass
import hashlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_client.security.identity.private_files import OWNER_FILE
from schemas.base import Frozen
from schemas.errors import EdgeError

BEGINNING = "0" * 64  # The digest before the first line


class AuditEntry(Frozen):
    """One change: when (seconds since 1970), by whom, what was done to what, and the values around it."""

    at: float
    who: str
    what: str
    target: str = ""
    before: Any = None
    after: Any = None
    previous: str


@dataclass(frozen=True)
class Damage:
    """The first line that does not follow from the one before it."""

    line: int
    why: str


def local_user() -> str:
    """The user of this process, as the audit log names the user of a command."""
    try:
        return f"local:{getpass.getuser()}"
    except (KeyError, OSError):
        return f"local:{os.getuid()}"


def append_entry(
    path: Path,
    *,
    who: str,
    what: str,
    target: str = "",
    before: Any = None,
    after: Any = None,
    at: float | None = None,
) -> AuditEntry:
    """Append a change; it is on disk when the function returns. `before` and `after` are JSON values."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, OWNER_FILE)
    with os.fdopen(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        last = _mend_last_line(file.fileno())
        entry = AuditEntry(
            at=time.time() if at is None else at,
            who=who,
            what=what,
            target=target,
            before=before,
            after=after,
            previous=_digest(last) if last else BEGINNING,
        )
        os.write(file.fileno(), entry.model_dump_json().encode() + b"\n")
        os.fsync(file.fileno())
    return entry


def read_entries(path: Path) -> Iterator[AuditEntry]:
    """Every entry, the oldest first; a last line that a power cut has torn is left out."""
    if not path.exists():
        return
    for number, line in enumerate(_lines(path), start=1):
        try:
            yield AuditEntry.model_validate_json(line)
        except ValueError as error:
            raise EdgeError(
                f"{path}: line {number} is damaged; `edge-server audit --verify` checks it"
            ) from error


def verify(path: Path) -> Damage | None:
    """The first line that was changed, or that follows a removed line; None if the log is whole."""
    last = BEGINNING
    for number, line in enumerate(_lines(path) if path.exists() else (), start=1):
        try:
            entry = AuditEntry.model_validate(json.loads(line))
        except ValueError:
            return Damage(number, "it is not an entry")
        if entry.previous != last:
            return Damage(number, "the line before it was changed or removed")
        last = _digest(line)
    return None


def length_and_digest(path: Path) -> tuple[int, str]:
    count, last = 0, b""
    for line in _lines(path) if path.exists() else ():
        count, last = count + 1, line
    return count, _digest(last) if last else BEGINNING


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield line.rstrip(b"\n")


def _mend_last_line(descriptor: int) -> bytes:
    """Cut off a torn last line; returns the last whole one, without its end."""
    size = os.fstat(descriptor).st_size
    begin, tail = size, b""
    while begin > 0 and tail.count(b"\n") < 2:
        length = min(4096, begin)
        begin -= length
        tail = os.pread(descriptor, length, begin) + tail
    whole, _, torn = tail.rpartition(b"\n")
    if torn:
        os.ftruncate(descriptor, size - len(torn))
    return whole.rpartition(b"\n")[2]


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()
