"""A curve in one line of text."""

from collections.abc import Sequence

BLOCKS = "▁▂▃▄▅▆▇█"
LETTERS = "_.-=+*%#"


def sparkline(values: Sequence[float], *, most: int = 32, ascii_only: bool = False) -> str:
    """The last `most` values, scaled to their own range."""
    levels = LETTERS if ascii_only else BLOCKS
    shown = values[-most:]
    if not shown:
        return ""
    lowest, span = min(shown), max(shown) - min(shown)
    return "".join(levels[_level(value - lowest, span)] for value in shown)


def _level(above: float, span: float) -> int:
    """A level from 0 to 7; a flat curve is drawn in the middle."""
    return round(7 * above / span) if span > 0 else 3
