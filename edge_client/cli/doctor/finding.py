"""What a check has found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "warning", "failure"]


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what to do where it is not well."""

    check: str
    level: Level
    detail: str
    remedy: str = ""


def ok(check: str, detail: str) -> Finding:
    """All is well."""
    return Finding(check, "ok", detail)


def warning(check: str, detail: str, remedy: str) -> Finding:
    """It works, or some of it does."""
    return Finding(check, "warning", detail, remedy)


def failure(check: str, detail: str, remedy: str) -> Finding:
    """It does not work."""
    return Finding(check, "failure", detail, remedy)
