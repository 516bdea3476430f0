"""Messages that label rows: from now on, by id, or by time."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from edge_client.agent.recording.readings import UNAVAILABLE
from schemas.errors import PeerError

FORMS = 'a text, {"id": ..., "label": ...} or {"from": ..., "to": ..., "label": ...}'


@dataclass(frozen=True)
class FromNow:
    """The label of the rows from now on; None: they have none yet."""

    label: str | None


@dataclass(frozen=True)
class ById:
    """The label of the row with this id."""

    ident: str
    label: str


@dataclass(frozen=True)
class ByTime:
    """The label of the rows recorded from `first` to `last`, in seconds since 1970."""

    first: float
    last: float
    label: str


def read_label(payload: bytes) -> FromNow | ById | ByTime:
    """What a message on the topic of labels says; `PeerError` for anything else."""
    try:
        text = payload.decode().strip()
    except UnicodeDecodeError:
        raise PeerError("the message is no text") from None
    try:
        found = json.loads(text) if text.startswith(("{", '"')) else text
    except (ValueError, RecursionError):
        raise PeerError(f"the label is no JSON: {text[:40]!r}") from None
    if not isinstance(found, dict):
        return FromNow(None if str(found).lower() in UNAVAILABLE else str(found))
    match {key: value for key, value in found.items() if value is not None}:
        case {"id": str() | int() as ident, "label": str() | int() | float() as label}:
            return ById(str(ident), str(label))
        case {"from": first, "to": last, "label": str() | int() | float() as label}:
            return ByTime(_seconds(first), _seconds(last), str(label))
        case {"label": str() | int() | float() as label, **rest} if not rest:
            return FromNow(str(label))
    raise PeerError(f"{text[:60]!r} is no label: expected {FORMS}")


def _seconds(value: Any) -> float:
    """A moment in seconds since 1970, from such a number or from ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        raise PeerError(f"{str(value)[:40]!r} is no time: write seconds since 1970, or ISO 8601") from None
