"""The log of long-running verbs, as their `--log-format` and `--log-level` say."""

import argparse
import collections
import contextlib
import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge_client.system.logging import formatters, rate_limit
from schemas.errors import ConfigError, nearest

FOLDER, CURRENT, EARLIER = "log", "recent.jsonl", "earlier.jsonl"
MAX_LINES = 500  # lines in memory, for a disk that is full or fails
MAX_BYTES = 512 * 1024  # bytes of each of the two files
LONGEST_LINE = 16_384


class RecentLog(logging.Handler):
    """Keeps the newest lines; floods are limited as on standard error, so that they push nothing out."""

    def __init__(self, state: Path, *, most_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self.setFormatter(formatters.JsonFormat())
        self._folder, self._most_bytes = state / FOLDER, most_bytes
        self._limiter = rate_limit.Limiter()
        self._lines: collections.deque[str] = collections.deque(maxlen=MAX_LINES)
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
    handler = rate_limit.LimitedHandler()
    handler.setFormatter(FORMATS[name]())
    # What libraries warn of becomes lines like all others.
    logging.captureWarnings(name == "json")
    logging.basicConfig(level=level, handlers=[handler])
