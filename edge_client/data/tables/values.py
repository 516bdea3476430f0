"""What the texts of a table stand for: numbers, truth values, and missing ones."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError, nearest

# Times as tables write them, as seconds: numbers, ISO 8601, and dates in the orders of several countries.

LOOK = 100  # times by which ways of writing are chosen that a column may have
HOUR_S = 3600.0
AUTUMNS = (3, 4, 9, 10, 11)  # months in which clocks go back, on either half of the globe
UNITS = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))  # at least the first: nano-, micro-, milliseconds

Seconds = NDArray[np.float64]
_EPOCH = datetime(1970, 1, 1)
_HOURS = (
    r"(?P<h>\d{1,2})[:.](?P<m>\d{2})(?:[:.](?P<s>\d{2})(?P<part>[.,]\d+)?)?(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
)
_CLOCK = re.compile(_HOURS)
_DATE = re.compile(rf"(\d{{1,4}})([./-])(\d{{1,2}})\2(\d{{1,4}})(?:[T ,;]+{_HOURS})?")
_DIGITS = re.compile(r"((?:19|20)\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)?")
_OFFSET = re.compile(r"\s+(?=[+-]\d\d:?\d\d$)|\s*(UTC|GMT)$")


def _number(text: str) -> float:
    number = float(text)
    if "_" in text or not math.isfinite(number):
        raise ValueError(text)
    return number


def _iso(text: str) -> float:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None or moment.year < 1900:
        raise ValueError(text)
    return (moment - _EPOCH).total_seconds()


def _iso_with_offset(text: str) -> float:
    moment = datetime.fromisoformat(_OFFSET.sub(lambda found: "Z" if found[1] else "", text))
    if moment.tzinfo is None:
        raise ValueError(text)
    return moment.timestamp()


def _digits(text: str) -> float:
    match = _DIGITS.fullmatch(text)
    if match is None:
        raise ValueError(text)
    year, month, day, hour, minute, second = (int(part or 0) for part in match.groups())
    return (datetime(year, month, day, hour, minute, second) - _EPOCH).total_seconds()


def _date(text: str, order: str) -> float:
    match = _DATE.fullmatch(text)
    if match is None or (order == "mdy" and match[2] == "."):
        raise ValueError(text)
    parts = dict(zip(order, (match[1], match[3], match[4]), strict=True))
    if len(parts["y"]) not in (2, 4) or (order == "ymd" and len(parts["y"]) != 4):
        raise ValueError(text)
    century = 0 if len(parts["y"]) == 4 else 2000
    days = date(century + int(parts["y"]), int(parts["m"]), int(parts["d"])).toordinal() - _EPOCH.toordinal()
    return days * 86_400 + (_seconds_of_day(match, text) if match["h"] else 0)


def _seconds_of_day(match: re.Match[str] | None, text: str) -> float:
    """Seconds since midnight; 24:00 is the end of the day."""
    if match is None:
        raise ValueError(text)
    hour, minute, second = int(match["h"]), int(match["m"]), int(match["s"] or 0)
    if match["half"]:
        if not 1 <= hour <= 12:
            raise ValueError(text)
        hour = hour % 12 + 12 * (match["half"] in "Pp")
    if hour > 24 or minute > 59 or second > 60 or (hour == 24 and minute + second):
        raise ValueError(text)
    return hour * HOUR_S + minute * 60 + second + float((match["part"] or "0").replace(",", "."))


@dataclass
class _Way:
    """One way of writing times, with what it makes of a column: NaN for a text that is none."""

    name: str
    parse: Callable[[str], float]
    is_local: bool = False
    parts: list[Seconds] = field(default_factory=list)
    failures: int = 0

    def read(self, texts: Sequence[str]) -> Seconds:
        seconds = np.empty(len(texts))
        for place, text in enumerate(texts):
            try:
                seconds[place] = self.parse(text)
            except (ValueError, OverflowError):
                seconds[place] = math.nan
        return seconds


def _ways(stated: str | None) -> list[_Way]:
    if stated is not None:
        return [_Way(stated, lambda text: _parse_moment(text, stated), is_local="%z" not in stated)]
    return [
        _Way("ISO 8601", _iso, is_local=True),
        _Way("ISO 8601 with an offset", _iso_with_offset),
        _Way("digits", _digits, is_local=True),
        _Way("numbers", _number),
        _Way("the year first", lambda text: _date(text, "ymd"), is_local=True),
        _Way("the day first", lambda text: _date(text, "dmy"), is_local=True),
        _Way("the month first", lambda text: _date(text, "mdy"), is_local=True),
        _Way("hours and minutes", lambda text: _seconds_of_day(_CLOCK.fullmatch(text), text)),
    ]


def _parse_moment(text: str, form: str) -> float:
    moment = datetime.strptime(text, form)
    return moment.timestamp() if moment.tzinfo else (moment - _EPOCH).total_seconds()


class Times:
    """A column of times, block by block, in every way in which it may be written."""

    def __init__(self, stated: str | None = None) -> None:
        self._ways, self._stated = _ways(stated), stated
        self._first = ""

    def add(self, texts: Sequence[str]) -> None:
        texts = [text.strip() for text in texts]
        if not self._first and texts:
            self._first, look = texts[0], texts[:LOOK]
            self._ways = [way for way in self._ways if 2 * np.isnan(way.read(look)).sum() < len(look)]
        for way in self._ways:
            way.parts.append(way.read(texts))
            way.failures += int(np.isnan(way.parts[-1]).sum())

    def seconds(self, where: str) -> tuple[Seconds, bool]:
        """The column in seconds [N], NaN where a text is not a time, and whether it is of local time.

        Raises `ConfigError` for texts that are no times, and for dates whose days and months cannot be told
        apart.
        """
        if not self._ways:
            form = "like time-format=%d.%m.%Y %H:%M" if self._stated is None else "that fits"
            raise ConfigError(
                f"{where} is not a time that is understood",
                remedy=f"state one {form}",
                quoted=repr(self._first),
            )
        fewest = min(way.failures for way in self._ways)
        best = [way for way in self._ways if way.failures == fewest]
        found = np.concatenate(best[0].parts)
        if best[0].name == "the day first" and len(best) > 1:
            other = np.concatenate(best[1].parts)
            if not np.array_equal(found, other, equal_nan=True):
                raise ConfigError(
                    "days and months cannot be told apart, state time-format=%d/%m/%Y %H:%M or %m/%d/%Y "
                    "%H:%M, as it is written",
                    place=where,
                    quoted=repr(self._first),
                )
        if best[0].name == "numbers":
            largest = np.nanmax(np.abs(found), initial=0)
            found = found / next((unit for least, unit in UNITS if largest >= least), 1.0)
        return found, best[0].is_local


def as_text(seconds: float, *, is_local: bool) -> str:
    """A time for messages: a date if it is one."""
    if not is_local and seconds < 1e8:
        return f"{seconds:g}"
    return str(_EPOCH + timedelta(seconds=float(seconds)))


def without_repeated_hours(seconds: Seconds, is_following: NDArray[np.bool_]) -> tuple[Seconds, int]:
    """Local times [N] that go on where clocks went back by an hour in autumn, and how often they did.

    `is_following` [N - 1] tells whether a row is of the series of the one before.
    """
    back = np.diff(seconds)
    turns = is_following & (back < 0) & (back > -HOUR_S)
    for place in np.flatnonzero(turns):
        moment = datetime.fromtimestamp(seconds[place + 1], UTC)
        turns[place] = moment.weekday() == 6 and moment.hour < 4 and moment.month in AUTUMNS
    later = np.concatenate([[0], np.cumsum(turns)])
    begins = np.concatenate([[0], np.where(is_following, 0, later[1:])])
    return seconds + HOUR_S * (later - np.maximum.accumulate(begins)), int(turns.sum())


def parse_gap(text: str | None, *, source: str) -> float | None:
    """Seconds of `30`, `30s`, `5min`, `2h`, `1d`; `ConfigError` for anything else."""
    if text is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|min|h|d|)", text.strip())
    seconds = float(match[1]) * {"": 1, "s": 1, "min": 60, "h": 3600, "d": 86_400}[match[2]] if match else 0
    if not seconds:
        raise ConfigError(f"gap={text} must be a time such as 30s, 5min or 2h", place=source)
    return seconds


def gaps_in(seconds: Seconds, is_following: NDArray[np.bool_], longest: float | None) -> NDArray[Any]:
    """Where [N - 1] a series has a gap of more than `longest` seconds; by default three of its median steps.

    Equal times, as of rows that are written faster than once a second, are no steps.
    """
    steps = np.diff(seconds)
    if longest is not None:
        return is_following & (steps > longest)
    gaps = np.zeros(len(steps), bool)
    edges = np.flatnonzero(~is_following)
    for part in np.split(np.arange(len(steps)), edges):
        own = steps[part[is_following[part]]]
        usual = np.median(own[own > 0]) if (own > 0).any() else math.inf
        gaps[part] = is_following[part] & (steps[part] > 3 * usual)
    return gaps


MISSING = frozenset(
    {"", "na", "<na>", "n/a", "#n/a", "nan", "null", "none", "?", "-", "--", "unavailable", "unknown"}
)
"""What stands for a missing number, in small letters; a text is missing only where its cell is empty."""
TRUTH = {"true": 1.0, "false": 0.0, "on": 1.0, "off": 0.0, "yes": 1.0, "no": 0.0}
"""Truth values of inputs, in small letters; labels keep these words as names of classes."""
WITH_COMMA = re.compile(r"[+-]?[\d.]*,[\d.,]*\d")  # or commas between thousands

Numbers = NDArray[np.float64]


def plain_numbers(texts: Sequence[str]) -> Numbers | None:
    """The numbers [N] if all texts are finite ones, else None; much faster than one by one."""
    try:
        numbers = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return None
    # float() reads 1_2, the name of a room or a class, as 12.
    return None if "_" in "".join(texts) or not np.isfinite(numbers).all() else numbers


def number_of(text: str) -> float:
    """The number that an input's text stands for, NaN where it is missing; `ValueError` if it is none."""
    plain = text.strip().lower()
    if plain in MISSING:
        return math.nan
    if plain in TRUTH:
        return TRUTH[plain]
    if "_" in plain:
        raise ValueError(text)
    return float(plain)


def is_number(text: str) -> bool:
    """Whether a text is a number, a truth value, or missing."""
    try:
        number_of(text)
    except ValueError:
        return False
    return True


def is_truth(text: str) -> bool:
    return text.strip().lower() in TRUTH


def missing_column(words: str, name: str, names: Sequence[str]) -> ConfigError:
    """The refusal of column `name`; `names` that hold a number may be a row of data, and are only quoted."""
    if any(plain_numbers([known]) is not None for known in names):
        return ConfigError(words, remedy="name the columns in its first line", quoted=", ".join(names))
    return ConfigError(f"{words}{nearest(name, names)}: {', '.join(names)}")


def remedy_of(text: str, column: str, *, has_decimal: bool) -> str:
    """What to do about a text that is not a number, in a table with or without the option `decimal`."""
    if WITH_COMMA.fullmatch(text.strip()) and not has_decimal:
        return "write it with a decimal point, and with nothing between thousands"
    if WITH_COMMA.fullmatch(text.strip()):
        return "state decimal=, if the comma is a decimal one, and put nothing between thousands"
    return f"leave the column out with ignore={column}"
