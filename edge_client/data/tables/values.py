"""What the texts of a table stand for: numbers, truth values, and missing ones."""

import math
import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from schemas.errors import ConfigError, nearest

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
        return ConfigError(f"{words}: name the columns in its first line", quoted=", ".join(names))
    return ConfigError(f"{words}{nearest(name, names)}: {', '.join(names)}")


def remedy_of(text: str, column: str, *, has_decimal: bool) -> str:
    """What to do about a text that is not a number, in a table with or without the option `decimal`."""
    if WITH_COMMA.fullmatch(text.strip()) and not has_decimal:
        return "write it with a decimal point, and with nothing between thousands"
    if WITH_COMMA.fullmatch(text.strip()):
        return "state decimal=, if the comma is a decimal one, and put nothing between thousands"
    return f"leave the column out with ignore={column}"
