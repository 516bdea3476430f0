"""Sensors' messages as the columns of a row: which topic gives a column, and the number in a message."""

import json
import math
from dataclasses import dataclass
from typing import Any

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
