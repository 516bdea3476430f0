"""Step graphs compared with torch: `python -m tests.step_graphs [WORD ...] [--out FILE]`.

A word is a network, such as `two-nn`, or begins the name of a case, such as `two-nn/1/plain/sgd`; without
words all cases. A JSON line for each case, as it ends. `--out` appends the lines to a file and leaves out the
cases that it has, so that an interrupted run goes on; processes with different words may share a file.
`--table FILE...` prints the table of such lines.
"""

import argparse
import contextlib
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path

import numpy as np

from tests.step_graphs.cases import OPTIMIZERS, Case, every_case
from tests.step_graphs.parity import LIMIT, Difference, compared


def main(words: Sequence[str]) -> int:
    """Compare and print the results; 1 if one of them is not torch's."""
    parser = argparse.ArgumentParser(prog="python -m tests.step_graphs")
    parser.add_argument("words", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--table", type=Path, nargs="+")
    chosen = parser.parse_args(words)
    if chosen.table:
        print("\n".join(table([one for path in chosen.table for one in _read(path)])))
        return 0
    found = list(_compared(chosen.words, chosen.out))
    if not chosen.words:
        print("\n".join(table(found)))
    return 0 if all(one.is_same for one in found) else 1


def table(found: Iterable[Difference]) -> Iterator[str]:
    """A Markdown table, a row per network and tier: the worst differences of all objectives by optimizer."""
    places = {case: place for place, case in enumerate(every_case())}
    rows = sorted({one.case: one for one in found}.values(), key=lambda one: places[one.case])
    yield f"| network | tier | {' | '.join(OPTIMIZERS)} |"
    yield "|" + " --- |" * (2 + len(OPTIMIZERS))
    for (model, tier), group in groupby(rows, key=lambda one: (one.case.model, one.case.tier)):
        of_tier = list(group)
        cells = [_cell([one for one in of_tier if one.case.optimizer == name]) for name in OPTIMIZERS]
        yield f"| {model} | {tier} | {' | '.join(cells)} |"
    same = [one for one in rows if one.is_same]
    close = sum(one.is_close for one in same)
    formula, update = _worst(same, lambda one: one.formula), _worst(same, lambda one: one.update)
    yield ""
    yield (
        f"{len(rows)} trainings: {len(same)} take torch's steps, "
        f"{close} of them within {LIMIT:g} in float32 too. "
        f"Largest differences of these: {formula} of formulas, {update} of optimizers. "
        f"Trainings that do not: {len(rows) - len(same)}."
    )


def _cell(found: Sequence[Difference]) -> str:
    if not found:
        return ""
    exact = _worst(found, lambda one: one.exact_step)
    step, free = _worst(found, lambda one: one.step), _worst(found, lambda one: one.free)
    mark = "" if all(one.is_same for one in found) else " **more**"
    return f"{exact}, {step}{mark} ({free})"


def _worst(found: Iterable[Difference], figure: Callable[[Difference], float]) -> str:
    """The largest figure, and NaN if one is."""
    return f"{np.max([figure(one) for one in found], initial=0):.0e}"


def _compared(words: Sequence[str], out: Path | None) -> Iterator[Difference]:
    """The chosen cases, those of the file first."""
    known = {one.case: one for one in _read(out)} if out is not None and out.exists() else {}
    chosen = list(_chosen(words))
    yield from (known[case] for case in chosen if case in known)
    for case in chosen:
        if case not in known:
            found = compared(case)
            line = json.dumps(asdict(found))
            print(line, flush=True)
            if out is not None:
                with out.open("a") as file:
                    file.write(line + "\n")
            yield found


def _chosen(words: Sequence[str]) -> Iterator[Case]:
    for case in every_case():
        name = f"{case.model}/{case.tier}/{case.objective}/{case.optimizer}/"
        if not words or any(name.startswith(f"{word}/") for word in words):
            yield case


def _read(path: Path) -> Iterator[Difference]:
    """The file's results; a line that was cut off is none."""
    for line in path.read_text().splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            fields = json.loads(line)
            yield Difference(**{**fields, "case": Case(**fields["case"])})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
