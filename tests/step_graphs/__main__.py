"""Step graphs compared with torch: `python -m tests.step_graphs`.

With arguments such as `two-nn/1/plain/sgd`, or `two-nn` for all of a network: a JSON line for each case, as
it ends. With `--table FILE...`: the table of such lines. Without arguments: all cases, then the table.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

from tests.step_graphs.cases import OPTIMIZERS, Case, every_case
from tests.step_graphs.parity import LIMIT, Difference, compared


def main(words: Sequence[str]) -> int:
    """Compare, and print the results."""
    if words[:1] == ["--table"]:
        found = [_difference(line) for word in words[1:] for line in Path(word).read_text().splitlines()]
    else:
        found = []
        for case in _chosen(words):
            found.append(compared(case))
            print(json.dumps(asdict(found[-1])), flush=True)
        if words:
            return 0
    print("\n".join(table(found)))
    return 0


def table(found: Sequence[Difference]) -> Iterator[str]:
    """A Markdown table, a row per network and tier: the worst objective's difference with each optimizer."""
    yield f"| network | tier | {' | '.join(OPTIMIZERS)} |"
    yield "|" + " --- |" * (2 + len(OPTIMIZERS))
    for (model, tier), group in groupby(found, key=lambda one: (one.case.model, one.case.tier)):
        rows = list(group)
        cells = [_cell(one for one in rows if one.case.optimizer == optimizer) for optimizer in OPTIMIZERS]
        yield f"| {model} | {tier} | {' | '.join(cells)} |"
    close = sum(one.graph <= LIMIT for one in found)
    explained = sum(one.graph > LIMIT and one.is_explained for one in found)
    yield ""
    yield (
        f"{len(found)} trainings: {close} within {LIMIT:g}, {explained} further that differ no more than "
        f"torch from itself, {len(found) - close - explained} that differ more."
    )


def _cell(found: Iterable[Difference]) -> str:
    worst = max(found, key=lambda one: one.graph, default=None)
    if worst is None:
        return ""
    mark = "" if worst.is_explained else ", **more**"
    return f"{worst.graph:.0e} ({worst.case.objective}; torch {worst.rounding:.0e}{mark})"


def _chosen(words: Sequence[str]) -> Iterator[Case]:
    for case in every_case():
        name = f"{case.model}/{case.tier}/{case.objective}/{case.optimizer}/"
        if not words or any(name.startswith(f"{word}/") for word in words):
            yield case


def _difference(line: str) -> Difference:
    fields = json.loads(line)
    return Difference(**{**fields, "case": Case(**fields["case"])})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
