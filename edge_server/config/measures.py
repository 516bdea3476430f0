"""Values with units in settings: `2h`, `500 MB`, `80 C`, `5%`; and files that they name."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, ValidationInfo

from schemas.errors import MAX_SECONDS, ConfigError

_QUANTITY = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>[A-Za-z°%]*)\s*\Z")
SECONDS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86_400.0),
    **dict.fromkeys(("w", "week", "weeks"), 604_800.0),
}
BYTES = {"B": 1.0, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}
CELSIUS = {"": 1.0, "C": 1.0, "°C": 1.0, "celsius": 1.0}
SHARES = {"": 1.0, "%": 0.01}
COUNTS = {"": 1.0, "times": 1.0}


def _from_folder(path: Path, info: ValidationInfo) -> Path:
    return Path(info.context or "", path.expanduser())


NamedPath = Annotated[Path, AfterValidator(_from_folder)]
"""A path in settings; a relative one counts from the folder that is the validation's context."""


def parse_duration(text: str) -> float:
    """The seconds of `90s`, `30 min`, `2h`, `14d` or `1w`; raises `ConfigError`."""
    seconds = quantity(text, SECONDS, "a duration such as 90s, 30min, 2h or 14d")
    if seconds > MAX_SECONDS:
        raise ConfigError(f"'{text}' is too long", remedy=f"at most {MAX_SECONDS / SECONDS['d']:.0f}d")
    return seconds


def parse_bytes(text: str) -> float:
    """The bytes of `500 MB` or `2GB`; raises `ConfigError`."""
    return quantity(text, BYTES, "a size such as 500MB or 2GB")


def parse_celsius(text: str) -> float:
    """The degrees of `80` or `80 C`; raises `ConfigError`."""
    return quantity(text, CELSIUS, "degrees Celsius such as 80 or '80 C'")


def parse_share(text: str) -> float:
    """The share of `0.05` or `5%`; raises `ConfigError`."""
    share = quantity(text, SHARES, "a share such as 0.05 or 5%")
    if share > 1:
        raise ConfigError(f"'{text}' is more than the whole", remedy="write a share such as 0.05 or 5%")
    return share


def parse_count(text: str) -> float:
    """The whole number of `5` or `5 times`; raises `ConfigError`."""
    count = quantity(text, COUNTS, "a whole number such as 5")
    if count < 1 or count != int(count):
        raise ConfigError(f"'{text}' is not a whole number such as 5")
    return count


def parse_digits(text: str) -> int | None:
    """The number of at most nine decimal digits; None for any other text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


def quantity(text: str, units: Mapping[str, float], expected: str) -> float:
    """The number times its unit's factor; `expected` says in an error what was expected."""
    found = _QUANTITY.match(text)
    if found is None or found["unit"] not in units:
        raise ConfigError(f"'{text}' is not {expected}")
    return float(found["number"]) * units[found["unit"]]
