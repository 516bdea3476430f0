"""The table of runtimes as a page."""

from collections.abc import Mapping, Sequence
from typing import Any

from edge_client.inference.runtimes import TOLERANCE
from tests.runtimes.environments import TITLES
from tests.runtimes.files import COLOURS, DATA, NETWORKS, RATIOS
from tests.runtimes.measure import BATCHES, PIXELS

Results = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By environment and file: `differences` at each batch and `boxes` in common, or a `problem`."""


def page_of(results: Results) -> str:
    """The page, a line for each network."""
    names = [name for name in TITLES if results.get(name)]
    titles = [TITLES[name] for name in names]
    lines = [
        "# Exported files in other runtimes",
        "",
        f"The largest difference of outputs from onnxruntime's, over the {len(RATIOS)} tiers and batches of "
        f"{BATCHES[0]} and {BATCHES[1]} examples: absolute for outputs up to 1, relative above. A number in "
        "brackets says that only so many tiers were measured, an empty cell that none was. Networks were "
        "trained for a few steps on the data named, whose examples they take; one recording is silent. "
        "Of a detector `logits` differ by so much; where the runtime reads the file's boxes, so many of all "
        f"tiers' have the same class, corners within {PIXELS} pixels and a score within {TOLERANCE:g}. "
        "Written by `make runtimes`.",
        "",
        f"| network | data | {' | '.join(titles)} |",
        f"| --- | --- |{' ---: |' * len(names)}",
    ]
    for network in NETWORKS:
        cells = [_cell([results[name].get(f"{network}-{tier}") for tier in _tiers()]) for name in names]
        lines.append(f"| `{network}` | {DATA.get(network, COLOURS)} | {' | '.join(cells)} |")
    problems = sorted(
        f"- {name}, `{file}`: {row['problem']}"
        for name in names
        for file, row in results[name].items()
        if "problem" in row
    )
    return "\n".join([*lines, *(["", *problems] if problems else [])]) + "\n"


def _tiers() -> range:
    return range(1, len(RATIOS) + 1)


def _cell(rows: Sequence[Mapping[str, Any] | None]) -> str:
    """The largest difference of a network's tiers, and its boxes in common."""
    measured = [row for row in rows if row is not None]
    differences = [max(row["differences"]) for row in measured if "differences" in row]
    if not measured:
        return ""
    if len(differences) < len(measured):
        return f"{len(measured) - len(differences)} refused"
    some = "" if len(measured) == len(rows) else f" ({len(measured)})"
    boxes = [row["boxes"] for row in measured if "boxes" in row]
    common = ", {:,} of {:,} boxes".format(*map(sum, zip(*boxes, strict=True))) if boxes else ""
    return f"{max(differences):.0e}{some}{common}"
