"""At most one line per kind, device and minute: who sends rubbish fast must not fill the disk with our words.

Limited are the lines that say a device or a reason themselves: those are written because of what others sent.
All others, which the program writes of itself, pass.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TextIO

WINDOW_S = 60.0
MOST_DEVICES = 20
"""So many devices per kind have lines of their own at a time; made-up names beyond them share one."""
MOST_LINES = 2000
"""So many kinds and devices are told apart at a time; kinds are the program's own, so few are needed."""
OTHERS = "(others)"
"""In whose name the shared line counts. No device has this name."""

Kind = tuple[str, int, str, str]
Key = tuple[Kind, str]


@dataclass
class _Held:
    """What was held back of a kind since its last line, at `since` seconds."""

    since: float
    count: int = 0
    last: logging.LogRecord | None = None


class Limiter:
    """Decides which records become lines; `now` is in seconds of any clock. Not thread-safe."""

    def __init__(self, *, window_s: float = WINDOW_S) -> None:
        self._window_s = window_s
        self._held: dict[Key, _Held] = {}
        self._devices: dict[Kind, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def take(self, record: logging.LogRecord, now: float) -> Iterator[logging.LogRecord]:
        """The lines to write now: those of kinds whose time is over, with their counts, then this one."""
        yield from self.due(now)
        if getattr(record, "device", None) is None and getattr(record, "reason", None) is None:
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
        """What was held back for long enough: one line per kind and device, which begins its next minute."""
        # Those that began first come first: a key is put at the end whenever it has its line.
        while self._held and now >= (first := next(iter(self._held.items())))[1].since + self._window_s:
            yield from self._end(*first, now)

    def rest(self, now: float) -> Iterator[logging.LogRecord]:
        """All that is still held back; the log ends."""
        for held in self._held.values():
            if held.last is not None:
                yield _counted(held.last, held.count, now - held.since)
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
            yield _counted(held.last, held.count, now - held.since)
            self._begin(key, now)

    def _key(self, record: logging.LogRecord) -> Key:
        """Its kind and its device, as far as there is room to tell them apart."""
        reason = str(getattr(record, "reason", None) or "")
        kind = (record.name, record.levelno, str(getattr(record, "what", record.msg)), reason)
        if len(self._held) >= MOST_LINES and kind not in self._devices:
            kind = ("", record.levelno, OTHERS, "")
        key = (kind, str(getattr(record, "device", None) or ""))
        full = self._devices.get(kind, 0) >= MOST_DEVICES
        return (kind, OTHERS) if full and key not in self._held else key


def _counted(record: logging.LogRecord, count: int, seconds: float) -> logging.LogRecord:
    """The last of the records that were held back, with their number."""
    if count == 1:
        return record
    line = copy.copy(record)
    line.msg = f"{record.getMessage()} (the last of {count} such lines in {seconds:.0f} s)"
    line.args = None
    return line


class LimitedHandler(logging.StreamHandler[TextIO]):
    """Writes to standard error what the limiter lets through; the rest with its count, also at the end."""

    def __init__(self) -> None:
        super().__init__()
        self._limiter = Limiter()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the lines that are due with this record."""
        for line in self._limiter.take(record, time.monotonic()):
            super().emit(line)

    def close(self) -> None:
        """Say what was held back; `logging` calls this when the process ends."""
        with self.lock or contextlib.nullcontext():
            for line in self._limiter.rest(time.monotonic()):
                super().emit(line)
        super().close()
