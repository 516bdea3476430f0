"""The same trainings in several processes at once: how memory falls into pieces is another in each."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

from tests.training_memory.measured import Case, Growth

RUNS = 5


def word(case: Case) -> str:
    """A case as a word of the command line."""
    return f"{case.model}/{case.tier}/{case.optimizer}/{case.batch}"


def case_of(text: str) -> Case:
    """The case that such a word names."""
    model, tier, optimizer, batch = text.split("/")
    return Case(model, int(tier), optimizer, int(batch))


def repeated(cases: Sequence[Case], runs: int = RUNS) -> list[Growth]:
    """Each case as the median of `runs` processes has grown."""
    # The cost model is that of one thread: each has working memory of its own.
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "tests.training_memory", *map(word, cases)]
    children = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) for _ in range(runs)
    ]
    told = [child.communicate()[0].splitlines() for child in children]
    if any(child.returncode for child in children):
        raise RuntimeError("a training could not be measured")
    return [_median([json.loads(line) for line in lines]) for lines in zip(*told, strict=True)]


def _median(told: Sequence[dict[str, object]]) -> Growth:
    growths = [Growth(**{**one, "case": Case(**one["case"])}) for one in told]  # type: ignore[arg-type]
    return replace(growths[0], measured=int(statistics.median(one.measured for one in growths)))
