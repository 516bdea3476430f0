"""The same trainings in several processes at once: how memory falls into pieces is another in each.

A few processes tell the median of most trainings well enough; where it is doubted, more are asked.
"""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace

from tests.training_memory.measured import Case, Growth

RUNS = 5
MORE = 4
"""So many times `RUNS` processes for a training that is doubted, the first ones among them."""


def word(case: Case) -> str:
    """A case as a word of the command line."""
    return f"{case.model}/{case.tier}/{case.optimizer}/{case.batch}"


def case_of(text: str) -> Case:
    """The case that such a word names."""
    model, tier, optimizer, batch = text.split("/")
    return Case(model, int(tier), optimizer, int(batch))


def repeated(
    cases: Sequence[Case], runs: int = RUNS, doubted: Callable[[Growth], bool] = lambda _: False
) -> list[Growth]:
    """Each case as the median of `runs` processes has grown; of `MORE` times as many if that is `doubted`."""
    reported = _at_once(cases, runs)
    unsure = [case for case in cases if doubted(_median(reported[case]))]
    for _ in range(MORE - 1 if unsure else 0):
        for case, growths in _at_once(unsure, runs).items():
            reported[case] += growths
    return [_median(growths) for growths in reported.values()]


def _at_once(cases: Sequence[Case], runs: int) -> dict[Case, list[Growth]]:
    # The cost model is that of one thread: each has working memory of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training_memory", *map(word, cases)]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(runs)
    ]
    reported = [child.communicate()[0].splitlines() for child in children]
    if any(child.returncode for child in children):
        raise RuntimeError("a training could not be measured")
    columns = zip(*reported, strict=True)
    return {case: [_growth(line) for line in lines] for case, lines in zip(cases, columns, strict=True)}


def _growth(line: str) -> Growth:
    one = json.loads(line)
    return Growth(**{**one, "case": Case(**one["case"])})


def _median(growths: Sequence[Growth]) -> Growth:
    return replace(growths[0], measured=int(statistics.median(growth.measured for growth in growths)))
