"""What training takes beside what the cost model says: `python -m tests.training_memory`.

With words like `two-nn/1/sgd/32` those cases once, a JSON line for each; without any, a table of all, each
the median of several processes.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tests.training_memory.measured import RATIOS, SHAPES, Case, Growth, every_case, grown
from tests.training_memory.repeated import case_of, repeated


def main(words: Sequence[str]) -> int:
    """Measure and print what came of it."""
    if not words:
        print("\n".join(table(repeated(every_case()))))
    for case in map(case_of, words):
        print(json.dumps(asdict(grown(case))), flush=True)
    return 0


def table(found: Sequence[Growth]) -> list[str]:
    """Markdown: a line per network and tier, predicted / measured MB for each optimizer at batch 32."""
    by_case = {case.case: case for case in found}
    lines = ["| network | tier | sgd | momentum | adam | sgd, batch 8 | sgd, batch 64 |", "|" + " --- |" * 7]
    for model in SHAPES:
        for tier in range(1, len(RATIOS) + 1):
            columns = [("sgd", 32), ("momentum", 32), ("adam", 32), ("sgd", 8), ("sgd", 64)]
            cells = [_cell(by_case.get(Case(model, tier, *column))) for column in columns]
            lines.append(f"| {model} | {tier} | {' | '.join(cells)} |")
    return lines


def _cell(one: Growth | None) -> str:
    if one is None:
        return ""
    return f"{one.predicted / 1e6:.1f} / {one.measured / 1e6:.1f} = {one.ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
