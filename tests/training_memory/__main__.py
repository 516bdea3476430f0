"""What training takes beside what the cost model says: `python -m tests.training_memory`.

With words like `two-nn/1/sgd/32` only those cases; a JSON line for each, and of all cases a table.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict

from tests.training_memory.measured import RATIOS, SHAPES, Case, Growth, every_case, grown


def main(words: Sequence[str]) -> int:
    """Measure and print what came of it."""
    cases = [_case(word) for word in words] or every_case()
    found = []
    for case in cases:
        found.append(grown(case))
        print(json.dumps(asdict(found[-1])), flush=True)
    if not words:
        print("\n".join(table(found)))
    return 0


def table(found: Sequence[Growth]) -> list[str]:
    """Markdown: a line per network and tier, predicted / measured MB for each optimizer at batch 32."""
    by_case = {one.case: one for one in found}
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


def _case(word: str) -> Case:
    model, tier, optimizer, batch = word.split("/")
    return Case(model, int(tier), optimizer, int(batch))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
