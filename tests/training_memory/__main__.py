"""Measured memory of training compared with the cost model: `python -m tests.training_memory`.

With arguments like `two-nn/1/sgd/32`: these cases once, a JSON line for each. Without: a table of all cases,
each the median of several processes.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tests.training_memory.measured import RATIOS, SHAPES, Case, Growth, every_case, grown
from tests.training_memory.repeated import case_of, repeated


def main(words: Sequence[str]) -> int:
    """Measure and print the results."""
    if not words:
        print("\n".join(table(repeated(every_case()))))
    for case in map(case_of, words):
        print(json.dumps(asdict(grown(case))), flush=True)
    return 0


def table(found: Sequence[Growth]) -> list[str]:
    """A Markdown table, a row per network and tier: predicted / measured MB by optimizer and batch."""
    by_case = {growth.case: growth for growth in found}
    lines = ["| network | tier | sgd | momentum | adam | sgd, batch 8 | sgd, batch 64 |", "|" + " --- |" * 7]
    for model in SHAPES:
        for tier in range(1, len(RATIOS) + 1):
            columns = [("sgd", 32), ("momentum", 32), ("adam", 32), ("sgd", 8), ("sgd", 64)]
            cells = [_cell(by_case.get(Case(model, tier, *column))) for column in columns]
            lines.append(f"| {model} | {tier} | {' | '.join(cells)} |")
    return lines


def _cell(growth: Growth | None) -> str:
    if growth is None:
        return ""
    return f"{growth.predicted / 1e6:.1f} / {growth.measured / 1e6:.1f} = {growth.ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
