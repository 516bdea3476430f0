"""Texts in `.xz`: ended runs for other machines, and the figures of published comparisons."""

import lzma
from pathlib import Path

ENDING = ".xz"


def pack_text(text: str) -> bytes:
    """The content of an `.xz` file with this text."""
    return lzma.compress(text.encode())


def read_text(path: Path) -> str:
    """The text of a file, or else of the file with `.xz` behind its name.

    Raises `OSError`, `EOFError`, `lzma.LZMAError` or `UnicodeDecodeError`.
    """
    packed = path.with_name(path.name + ENDING)
    if path.suffix != ENDING and (path.exists() or not packed.exists()):
        return path.read_text(encoding="utf-8")
    found = path if path.suffix == ENDING else packed
    return lzma.decompress(found.read_bytes()).decode()
