"""Pieces of Markdown that several pages use."""

import re
from collections.abc import Iterable, Sequence

NOTE = "<!-- Generated from the code by `make reference`: change the code, not this page. -->"


def page(title: str, *parts: str) -> str:
    """A page with its title; empty parts are left out."""
    return "\n\n".join([NOTE, f"# {title}", *(part.strip("\n") for part in parts if part)]) + "\n"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; bars and line breaks in cells are escaped."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(_cell(cell) for cell in line)} |" for line in lines)


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|").strip()


def code(text: str) -> str:
    """Inline code; empty for an empty text."""
    return f"`{text}`" if text else ""
