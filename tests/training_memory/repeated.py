"""The same trainings in several processes at once, since memory fragments differently in each.

A few processes suffice for the median of most trainings; more are started where the median is doubted.
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
MORE = (15,)
"""Further processes for a doubted training, in turns, as long as it is doubted."""


def word(case: Case) -> str:
    """A case as a command-line argument."""
    return f"{case.model}/{case.tier}/{case.optimizer}/{case.batch}"


def case_of(text: str) -> Case:
    """Parse a case from a command-line argument."""
    model, tier, optimizer, batch = text.split("/")
    return Case(model, int(tier), optimizer, int(batch))


def repeated(
    cases: Sequence[Case],
    runs: int = RUNS,
    doubted: Callable[[Growth], bool] = lambda _: False,
    *,
    more: Sequence[int] = MORE,
) -> list[Growth]:
    """The median growth of each case over `runs` processes, and over `more` if it is `doubted`."""
    reported = _at_once(cases, runs)
    for further in more:
        unsure = [case for case in cases if doubted(_median(reported[case]))]
        for case, growths in (_at_once(unsure, further) if unsure else {}).items():
            reported[case] += growths
    return [_median(growths) for growths in reported.values()]


def _at_once(cases: Sequence[Case], runs: int) -> dict[Case, list[Growth]]:
    # The cost model is for one thread: each thread has its own working memory.
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
    fields = json.loads(line)
    return Growth(**{**fields, "case": Case(**fields["case"])})


def _median(growths: Sequence[Growth]) -> Growth:
    return replace(growths[0], measured=int(statistics.median(growth.measured for growth in growths)))
