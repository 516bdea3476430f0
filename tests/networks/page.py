"""The table of networks as a page."""

from collections.abc import Sequence

from tests.networks.measure import Measured
from tests.networks.names import CLASSES, SIDE

MAX_STOPS = 4  # operations that a cell names
MAX_LETTERS = 160  # of a problem


def page_of(rows: Sequence[Measured]) -> str:
    """The page, a line for each network."""
    releases = " and ".join(sorted({row.release for row in rows}))
    cut, some = (sum(least < row.left <= most for row in rows) for least, most in ((0, 1 / 3), (1 / 3, 1)))
    exported = sum(len(row.differences) == 2 for row in rows)
    lines = [
        "# Networks of torchvision and timm",
        "",
        f"{len(rows)} networks by name, of {releases}, with drawn weights, for pictures of {SIDE} x {SIDE} "
        f"pixels and {CLASSES} classes. `cut` is the network with half of the channels of each group: {cut} "
        f"networks then have at most a third of their parameters; in {some} others more channels stay whole, "
        f"because they are not followed past the operation named. {exported} networks were exported: one "
        "ONNX graph takes the whole and the cut weights, and `difference` is the largest of onnxruntime's "
        "outputs from torch's, whole / cut, relative to the largest output; an empty cell was not measured. "
        "Written by `make networks`.",
        "",
        "| network | parameters | MACs | groups | parameters cut | MACs cut | difference | stays whole at |",
        "| --- | ---: | ---: | ---: | ---: | ---: | --- | --- |",
        *map(_line, rows),
    ]
    return "\n".join(lines) + "\n"


def _line(row: Measured) -> str:
    if not row.parameters:
        return f"| `{row.name}` | | | | | | | {_shorten(row.problem)} |"
    figures = (
        f"{row.parameters / 1e6:.2f} M",
        f"{row.macs / 1e6:.0f} M",
        str(row.groups),
        f"{100 * row.left:.0f} %",
        f"{100 * row.macs_left:.0f} %",
        " / ".join(f"{difference:.0e}" for difference in row.differences) or _shorten(row.problem),
        _stops(row.stops),
    )
    return f"| `{row.name}` | {' | '.join(figures)} |"


def _stops(stops: Sequence[str]) -> str:
    more = [f"{len(stops) - MAX_STOPS} more"] if len(stops) > MAX_STOPS else []
    return ", ".join([*(f"`{stop}`" for stop in stops[:MAX_STOPS]), *more])


def _shorten(text: str) -> str:
    plain = " ".join(text.replace("|", "/").split())
    return plain if len(plain) <= MAX_LETTERS else f"{plain[: MAX_LETTERS - 3]}..."
