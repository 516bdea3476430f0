"""Sensors' messages as rows: which topic gives a column, the number in a message, and the rows.

A row has each column's last value, taken by the clock or by id.
"""

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from edge_client.data.tables.recorded import ExampleStore
from schemas.errors import ConfigError, PeerError, nearest

STATES = {  # The states of binary sensors, as Home Assistant and Zigbee2MQTT write them
    **dict.fromkeys(("on", "true", "open", "home", "detected", "wet", "unlocked"), 1.0),
    **dict.fromkeys(("off", "false", "closed", "not_home", "clear", "dry", "locked"), 0.0),
}
UNAVAILABLE = frozenset({"", "unavailable", "unknown", "none", "null", "nan", "offline"})
"""What a sensor without a value sends."""


@dataclass(frozen=True)
class Place:
    """Where a value is: the whole message of a topic, or the value behind `keys` in its JSON object."""

    topic: str
    keys: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reading:
    """A column, and where its values come from."""

    name: str
    place: Place


def parse_reading(text: str) -> Reading:
    """`NAME=TOPIC` or `NAME=TOPIC#KEY.KEY`; `ConfigError` for anything else."""
    name, separator, place = text.partition("=")
    if not separator or not name.strip():
        raise ConfigError(
            "expected NAME=TOPIC or NAME=TOPIC#KEY, such as co2=home/barn/air#co2", key=f"--column '{text}'"
        )
    return Reading(name.strip(), parse_place(place.strip(), option=f"--column '{text}'"))


def parse_place(text: str, *, option: str) -> Place:
    """`TOPIC` or `TOPIC#KEY.KEY`; `ConfigError` for an empty topic or one with wildcards."""
    topic, separator, keys = text.partition("#")
    if not topic or "+" in topic or (separator and (not keys or topic.endswith("/"))):
        raise ConfigError(
            f"'{text}' is not a single topic",
            key=option,
            remedy="write TOPIC for a plain value, TOPIC#KEY for a value in JSON; a topic has no wildcard",
        )
    return Place(topic, tuple(keys.split(".")) if keys else ())


def number_in(payload: bytes, keys: tuple[str, ...]) -> float | None:
    """The number in a message; None if the sensor has no value now; `PeerError` for what is not a number."""
    found = value_in(payload, keys)
    if isinstance(found, bool | int | float):
        number = float(found)
        return None if math.isnan(number) else _finite(number, found)
    text = str(found or "").strip().lower()
    if text in UNAVAILABLE:
        return None
    if text in STATES:
        return STATES[text]
    try:
        return _finite(float(text), found)
    except ValueError:
        raise PeerError(f"{str(found)[:40]!r} is not a number") from None


def value_in(payload: bytes, keys: tuple[str, ...]) -> Any:
    """The text of a message, or the value behind `keys` in its JSON; `PeerError` if there is none."""
    try:
        text = payload.decode()
        found = json.loads(text) if keys else text
    except (UnicodeDecodeError, ValueError, RecursionError):
        raise PeerError("the message is not JSON" if keys else "the message is not text") from None
    for key in keys:
        if not isinstance(found, dict):
            raise PeerError(f"'{key}' is looked for in {str(found)[:40]!r}, which has no keys")
        if key not in found:
            raise PeerError(f"the message has no key '{key}'{nearest(key, map(str, found))}")
        found = found[key]
    return found


def _finite(number: float, found: Any) -> float:
    if not math.isfinite(number):
        raise PeerError(f"{str(found)[:40]!r} is not a finite number")
    return number


@dataclass(frozen=True)
class Wanted:
    """What is recorded.

    With `ident` a row is recorded when an id arrives there, else every `every_s` seconds. Labels come on the
    topic `label`.
    """

    readings: tuple[Reading, ...]
    every_s: float = 10.0
    ident: Place | None = None
    label: str | None = None

    @property
    def topics(self) -> tuple[str, ...]:
        places = [reading.place for reading in self.readings] + ([self.ident] if self.ident else [])
        return tuple(dict.fromkeys([place.topic for place in places] + ([self.label] if self.label else [])))


@dataclass
class Counts:
    rows: int = 0
    labelled: int = 0
    incomplete: int = 0
    refused: Counter[str] = field(default_factory=Counter)


class RowMaker:
    """Takes messages, and writes rows and labels into a store. Times are given, so that it needs no clock."""

    def __init__(self, wanted: Wanted, store: ExampleStore) -> None:
        self._wanted, self._store = wanted, store
        self._values: dict[str, float] = {}
        self._label: str | None = None
        self._last: float | None = None
        self.counts = Counts()

    @property
    def missing(self) -> Sequence[str]:
        return [reading.name for reading in self._wanted.readings if reading.name not in self._values]

    def take(self, topic: str, payload: bytes, *, now: float) -> None:
        """Take a message; `PeerError` for what cannot be used, which is counted by topic."""
        try:
            self._take_values(topic, payload)
            if topic == self._wanted.label:
                self._take_label(payload)
            if self._wanted.ident and topic == self._wanted.ident.topic:
                self._take_ident(self._wanted.ident, payload, now)
        except PeerError:
            self.counts.refused[topic] += 1
            raise

    def tick(self, now: float) -> bool:
        """Record a row by the clock, if all columns have a value; says whether one was recorded."""
        if self._last is not None and not 0 < now - self._last < 1.5 * self._wanted.every_s:
            # The machine slept, or the clock was set.
            self._store.begin_series()
        self._last = now
        return self._record(now, "")

    def forget(self) -> None:
        """The connection is lost: values may change unseen, so columns wait for new ones."""
        self._values.clear()
        self._label = None

    def _take_values(self, topic: str, payload: bytes) -> None:
        trouble = None
        for reading in self._wanted.readings:
            if reading.place.topic != topic:
                continue
            try:
                number = number_in(payload, reading.place.keys)
            except PeerError as error:
                number, trouble = None, PeerError(f"column '{reading.name}': {error}")
            if number is None:
                self._values.pop(reading.name, None)
            else:
                self._values[reading.name] = number
        if trouble is not None:
            raise trouble

    def _take_label(self, payload: bytes) -> None:
        match read_label(payload):
            case FromNow(label):
                self._label = label
            case ById(ident, label):
                if not self._store.label(ident, label):
                    raise PeerError(f"label '{label}' names no example: there is no id '{ident}' (any more)")
                self.counts.labelled += 1
            case ByTime(first, last, label):
                labelled = self._store.label_span(first, last, label)
                if not labelled:
                    raise PeerError(f"label '{label}' names no example: none was recorded in that time")
                self.counts.labelled += labelled

    def _take_ident(self, place: Place, payload: bytes, now: float) -> None:
        ident = str(value_in(payload, place.keys)).strip()
        if not ident:
            raise PeerError("the id is empty")
        if not self._record(now, ident):
            raise PeerError(f"the row '{ident}' is incomplete: no value of {', '.join(self.missing)}")

    def _record(self, now: float, ident: str) -> bool:
        if self.missing:
            self.counts.incomplete += 1
            self._store.begin_series()
            return False
        self._store.add(self._values, at=now, ident=ident, label=self._label)
        self.counts.rows += 1
        self.counts.labelled += self._label is not None
        return True


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
        raise PeerError("the message is not text") from None
    try:
        found = json.loads(text) if text.startswith(("{", '"')) else text
    except (ValueError, RecursionError):
        raise PeerError(f"the label is not JSON: {text[:40]!r}") from None
    if not isinstance(found, dict):
        return FromNow(None if str(found).lower() in UNAVAILABLE else str(found))
    match {key: value for key, value in found.items() if value is not None}:
        case {"id": str() | int() as ident, "label": str() | int() | float() as label}:
            return ById(str(ident), str(label))
        case {"from": first, "to": last, "label": str() | int() | float() as label}:
            return ByTime(_seconds(first), _seconds(last), str(label))
        case {"label": str() | int() | float() as label, **rest} if not rest:
            return FromNow(str(label))
    raise PeerError(f"{text[:60]!r} is not a label: expected {FORMS}")


def _seconds(value: Any) -> float:
    """A moment in seconds since 1970, from such a number or from ISO 8601."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    try:
        return datetime.fromisoformat(str(value)).timestamp()
    except ValueError:
        raise PeerError(f"{str(value)[:40]!r} is not a time: write seconds since 1970, or ISO 8601") from None
