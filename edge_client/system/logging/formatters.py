"""One line per record; text from devices cannot start a line of its own."""

import json
import logging
import traceback
import unicodedata  # noqa: F401 (loaded now: `plain` may be called where no descriptor is free)
from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from edge_client.system.plain_text import plain
from schemas.errors import ConfigError

FACTS = ("federation", "run", "round", "device", "reason")  # of a line, in this order
_about: Mapping[str, Any] = MappingProxyType({})


def about(**facts: Any) -> None:
    """Add facts to all later lines; None removes one. Any thread may call this, also often."""
    global _about
    if any(_about.get(name) != value for name, value in facts.items()):
        _about = MappingProxyType({**_about, **facts})


def facts_of(record: logging.LogRecord) -> dict[str, Any]:
    """The facts of a line: its own, else those of the process."""
    said = {name: getattr(record, name, None) for name in FACTS}
    found = {name: _about.get(name) if value is None else value for name, value in said.items()}
    return {name: value for name, value in found.items() if value is not None}


LONGEST_MESSAGE = 8000


class _Format(logging.Formatter):
    def formatException(self, ei: Any) -> str:
        return stack_of(ei[1])


class HumanFormat(_Format):
    """`14:03:07 WARNING words [federation=home round=3 device=pi-3 reason=not-finite]`.

    A traceback follows, each line indented, so that no text can imitate another log line.
    """

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created).strftime("%H:%M:%S")
        facts = " ".join(f"{name}={plain(str(value))}" for name, value in facts_of(record).items())
        line = f"{time} {record.levelname} {_message(record)}" + (f" [{facts}]" if facts else "")
        raised = _format_traceback(self, record)
        return "\n".join([line, *(f"    | {plain(part)}" for part in raised.splitlines())])


class JsonFormat(_Format):
    """One JSON object: `time` (UTC, ISO 8601), `level`, `logger`, `message`, the facts, `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _message(record),
            **facts_of(record),
        }
        raised = _format_traceback(self, record)
        # ASCII alone: all other characters are escaped.
        return json.dumps(said | ({"exception": raised} if raised else {}), default=str)


def stack_of(error: BaseException) -> str:
    """The traceback of an exception, alone if its chain has a `ConfigError`, whose causes quote the data."""
    part: BaseException | None = error
    while part is not None and not isinstance(part, ConfigError):
        part = part.__cause__ or part.__context__
    return "".join(traceback.format_exception(error, chain=part is None)).rstrip("\n")


def _message(record: logging.LogRecord) -> str:
    words = plain(record.getMessage())
    return words if len(words) <= LONGEST_MESSAGE else words[:LONGEST_MESSAGE] + "..."


def _format_traceback(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """The traceback, and the stack if requested."""
    parts = [formatter.formatException(record.exc_info)] if record.exc_info and record.exc_info[0] else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)
