"""The result of a check."""

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """One line: what was checked, the result, and the remedy."""

    check: str
    level: Level
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """A check that passed in part."""
    return Finding(check, "warning", detail, remedy)


def failure(check: str, detail: str, remedy: str) -> Finding:
    return Finding(check, "failure", detail, remedy)
