"""The log of long-running verbs, as their `--log-format` and `--log-level` say, and its limits.

There is at most one line per kind, device and minute, so that malicious messages cannot fill the disk.
Limited are lines that name a device or a reason, since others' messages cause them, and tracebacks, which a
loop repeats.
"""

import argparse
import collections
import contextlib
import copy
import json
import logging
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from edge_client.system.logging import formatters
from schemas.errors import ConfigError, nearest

WINDOW_S = 60.0
MAX_DEVICES = 20  # devices per kind with lines of their own; further names share one
MAX_LINES = 2000  # largest number of distinguished pairs of kind and device; the program has few kinds
LONGEST_REASON = 200  # characters by which two exceptions are told apart
OTHERS = "(others)"  # the name under which the shared line counts; no device has it

Kind = tuple[str, int, str, str]
Key = tuple[Kind, str]


@dataclass
class _Held:
    """What was suppressed of a kind since its last line, at `since` seconds."""

    since: float
    count: int = 0
    last: logging.LogRecord | None = None


class Limiter:
    """Decides which records become lines; `now` is in seconds of any clock. Not thread-safe."""

    def __init__(self) -> None:
        self._held: dict[Key, _Held] = {}
        self._devices: dict[Kind, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, record: logging.LogRecord, now: float) -> Iterator[logging.LogRecord]:
        """The lines to write now: due ones with the number of suppressed records, then this one."""
        yield from self.due(now)
        named = any(getattr(record, name, None) is not None for name in ("device", "reason"))
        if not named and not record.exc_info:
            yield record
            return
        key = self._key(record)
        held = self._held.get(key)
        if held is None:
            self._begin(key, now)
            yield record
        else:
            held.count, held.last = held.count + 1, record

    def due(self, now: float) -> Iterator[logging.LogRecord]:
        """Records whose minute is over: one line per kind and device, which starts the next minute."""
        # Those that began first come first: a key is put at the end whenever it has its line.
        while self._held and now >= (first := next(iter(self._held.items())))[1].since + WINDOW_S:
            yield from self._end(*first, now)

    def rest(self, now: float) -> Iterator[logging.LogRecord]:
        """All suppressed records, at the end of the log."""
        for held in self._held.values():
            if held.last is not None:
                yield _with_count(held.last, held.count, now - held.since)
        self._held.clear()
        self._devices.clear()

    def _begin(self, key: Key, now: float) -> None:
        self._held[key] = _Held(now)
        self._devices[key[0]] = self._devices.get(key[0], 0) + 1

    def _end(self, key: Key, held: _Held, now: float) -> Iterator[logging.LogRecord]:
        del self._held[key]
        self._devices[key[0]] -= 1
        if not self._devices[key[0]]:
            del self._devices[key[0]]
        if held.last is not None:
            yield _with_count(held.last, held.count, now - held.since)
            self._begin(key, now)

    def _key(self, record: logging.LogRecord) -> Key:
        """The kind and the device of a record, or the shared key if there are too many."""
        reason = str(getattr(record, "reason", None) or _describe_exception(record))
        kind = (record.name, record.levelno, str(getattr(record, "what", record.msg)), reason)
        if len(self._held) >= MAX_LINES and kind not in self._devices:
            kind = ("", record.levelno, OTHERS, "")
        key = (kind, str(getattr(record, "device", None) or ""))
        full = self._devices.get(kind, 0) >= MAX_DEVICES
        return (kind, OTHERS) if full and key not in self._held else key


def _describe_exception(record: logging.LogRecord) -> str:
    """The type and the text of a traceback's exception."""
    raised = record.exc_info[1] if record.exc_info else None
    return "" if raised is None else f"{type(raised).__name__}: {raised}"[:LONGEST_REASON]


def _with_count(record: logging.LogRecord, count: int, seconds: float) -> logging.LogRecord:
    """The last suppressed record with the number of all."""
    if count == 1:
        return record
    line = copy.copy(record)
    line.msg = f"{record.getMessage()} (the last of {count} such lines in {seconds:.0f} s)"
    line.args = None
    return line


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes admitted records to standard error, and the number of suppressed ones later or at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = Limiter()
        self._broken_until = 0.0

    def emit(self, record: logging.LogRecord) -> None:
        for line in self._limiter.take(record, time.monotonic()):
            super().emit(line)

    def handleError(self, record: logging.LogRecord) -> None:
        """Say once a minute that lines cannot be written; `logging` itself writes a traceback for each."""
        now, raised = time.monotonic(), sys.exception()
        if now < self._broken_until or isinstance(raised, BrokenPipeError):
            return
        self._broken_until = now + WINDOW_S
        with contextlib.suppress(Exception):
            lost = f"lines of the log are lost: {type(raised).__name__}: {raised}"
            self.stream.write(f"{lost}{self.terminator}")
            self.flush()

    def close(self) -> None:
        """Write what was suppressed; `logging` calls this at the end of the process."""
        with self.lock or contextlib.nullcontext():
            for line in self._limiter.rest(time.monotonic()):
                super().emit(line)
        super().close()


FOLDER, CURRENT, EARLIER = "log", "recent.jsonl", "earlier.jsonl"
KEPT_LINES = 500  # lines in memory, for a disk that is full or fails
MAX_BYTES = 512 * 1024  # bytes of each of the two files
LONGEST_LINE = 16_384


class RecentLog(logging.Handler):
    """Keeps the newest lines; floods are limited as on standard error, so that they push nothing out."""

    def __init__(self, state: Path, *, most_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self.setFormatter(formatters.JsonFormat())
        self._folder, self._most_bytes = state / FOLDER, most_bytes
        self._limiter = Limiter()
        self._lines: collections.deque[str] = collections.deque(maxlen=KEPT_LINES)
        self._written = _size(self._folder / CURRENT)

    def emit(self, record: logging.LogRecord) -> None:
        for due in self._limiter.take(record, time.monotonic()):
            line = self.format(due)[:LONGEST_LINE]
            self._lines.append(line)
            with contextlib.suppress(OSError):
                self._write(line)

    def lines(self) -> list[dict[str, Any]]:
        """All kept lines, the oldest first: those of earlier processes too."""
        with self.lock or contextlib.nullcontext():
            inside = list(self._lines)
        kept = read_recent_log(self._folder.parent)
        known = collections.Counter(json.dumps(line) for line in kept)
        return kept + [line for line in _decode_lines(inside) if not known[json.dumps(line)]]

    def _write(self, line: str) -> None:
        data, path = f"{line}\n".encode(), self._folder / CURRENT
        if self._written and self._written + len(data) > self._most_bytes:
            path.replace(self._folder / EARLIER)
            self._written = 0
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)
        self._written += len(data)


def keep_recent_log(state: Path) -> None:
    logging.getLogger().addHandler(RecentLog(state))


def recent_lines(state: Path) -> list[dict[str, Any]]:
    """The newest lines of the device's log: of this process if it keeps them, else of its files."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, RecentLog) and handler._folder == state / FOLDER:
            return handler.lines()
    return read_recent_log(state)


def read_recent_log(state: Path) -> list[dict[str, Any]]:
    """The lines in the files, the oldest first; a line that a crash has cut off is left out."""
    found: list[dict[str, Any]] = []
    for name in (EARLIER, CURRENT):
        with contextlib.suppress(OSError):
            text = (state / FOLDER / name).read_text(errors="replace")
            found += _decode_lines(text.splitlines())
    return found


def _decode_lines(lines: list[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                yield value


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


FORMATS: dict[str, type[logging.Formatter]] = {"human": formatters.HumanFormat, "json": formatters.JsonFormat}
LEVELS = ("debug", "info", "warning", "error")
FORMAT_VARIABLE = "EDGE_LOG_FORMAT"  # the default format; child processes inherit it


def begin_log(args: argparse.Namespace, *, level: int, **facts: Any) -> None:
    """Log to standard error as `args` say, by default from `level` on; all lines have the `facts`.

    With `--quiet` the default is warnings.
    """
    if getattr(args, "quiet", False):
        level = logging.WARNING
    if args.log_format:
        os.environ[FORMAT_VARIABLE] = args.log_format
    wanted = logging.getLevelNamesMapping()[args.log_level.upper()] if args.log_level else level
    begin_inherited_log(wanted, **facts)


def begin_inherited_log(level: int, **facts: Any) -> None:
    """Log in the format of the parent process, if it set one."""
    name = os.environ.get(FORMAT_VARIABLE, "human")
    if name not in FORMATS:
        raise ConfigError(f"{FORMAT_VARIABLE}={name}: human or json{nearest(name, FORMATS)}")
    formatters.about(**facts)
    handler = LimitedHandler()
    handler.setFormatter(FORMATS[name]())
    # What libraries warn of becomes lines like all others.
    logging.captureWarnings(name == "json")
    logging.basicConfig(level=level, handlers=[handler])
