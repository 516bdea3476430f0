"""Files of `/proc` and `/sys` that may be missing, unreadable or invalid, which yields None."""

from pathlib import Path

ROOT = Path("/")  # the folder of `proc`, `sys` and `dev`; tests use their own
MAX_BYTES = 256 * 1024  # upper limit of a file: twice the `/proc/cpuinfo` of a hundred cores
MAX_NAME = 200


def text(path: Path) -> str:
    """The file's text without surrounding blanks and NULs; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES).decode(errors="replace").strip("\0 \t\r\n")
    except (OSError, ValueError):
        return ""


def name(path: Path) -> str | None:
    """A name in a file: one short, printable line."""
    found = text(path)
    return found if 0 < len(found) <= MAX_NAME and found.isprintable() else None


def number(path: Path) -> int | None:
    return whole(text(path))


def whole(word: str) -> int | None:
    """The whole number in a text, if it is one of at most 64 bits."""
    digits = word.removeprefix("-")
    return int(word) if digits.isascii() and digits.isdigit() and len(digits) <= 20 else None


def entries(folder: Path, pattern: str = "*") -> list[Path]:
    """The entries of a folder by name; none if it does not exist."""
    try:
        return sorted(folder.glob(pattern))
    except (OSError, ValueError):
        return []
