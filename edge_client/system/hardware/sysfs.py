"""Files of `/proc` and `/sys` that may be missing, unreadable or garbage: what cannot be read is no value."""

from __future__ import annotations

from pathlib import Path

ROOT = Path("/")
"""Where `proc`, `sys` and `dev` lie; tests have a tree of their own."""
MAX_BYTES = 256 * 1024
"""Nothing here is longer: `/proc/cpuinfo` of a hundred cores is half of it."""
MAX_NAME = 200


def text(path: Path) -> str:
    """The file's text without the blanks and NULs around it; empty where there is none to be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace").strip("\0 \t\r\n")
    except (OSError, ValueError):
        return ""


def name(path: Path) -> str | None:
    """A name that the file holds: one short line that can be printed."""
    found = text(path)
    return found if 0 < len(found) <= MAX_NAME and found.isprintable() else None


def number(path: Path) -> int | None:
    """The whole number that the file holds."""
    return whole(text(path))


def whole(word: str) -> int | None:
    """The whole number that is written there, if it is one and no longer than 64 bits."""
    digits = word.removeprefix("-")
    return int(word) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def entries(folder: Path, pattern: str = "*") -> list[Path]:
    """What lies in the folder, by name; nothing where there is no such folder."""
    try:
        return sorted(folder.glob(pattern))
    except (OSError, ValueError):
        return []
