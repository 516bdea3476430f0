"""Repeats runs until enough failures were injected, and compares each with an undisturbed run."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tests.chaos.disturbed_run import DisturbedRun, Outcome
from tests.chaos.processes import DEVICES, NETWORK


@dataclass
class Report:
    """Numbers of runs, failures and errors (see `Outcome`), and seconds to recover by kind of failure."""

    runs: int = 0
    failures: int = 0
    lost: int = 0
    doubled: int = 0
    forked: int = 0
    different: int = 0
    late: int = 0
    seconds: dict[str, list[float]] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """1 if anything was lost, doubled or different."""
        return 1 if self.lost or self.doubled or self.forked or self.different else 0

    def add(self, outcome: Outcome, undisturbed: Outcome) -> None:
        """Count a run; it is `different` if its models are not those of the undisturbed run."""
        self.runs += 1
        self.failures += outcome.failures
        self.lost += outcome.lost
        self.doubled += outcome.doubled
        self.forked += outcome.forked
        self.late += outcome.late
        self.different += outcome.result != undisturbed.result
        for kind, seconds in outcome.seconds.items():
            self.seconds.setdefault(kind, []).extend(seconds)

    def rows(self) -> list[tuple[str, int, float, float]]:
        """Kind, recoveries, median and maximum of seconds."""
        return [
            (kind, len(seconds), median(seconds), max(seconds))
            for kind, seconds in self.seconds.items()
            if seconds
        ]


def repeat(
    run: Callable[..., Outcome],
    folder: Path,
    *,
    failures: int,
    rounds: int,
    per_run: int,
    seed: int,
    say: Callable[[str], None],
    devices: int = DEVICES,
    network: str = NETWORK,
) -> Report:
    """Inject `failures` failures, at most `per_run` into each run of `rounds` rounds.

    `run` takes a folder, the run's number (0 of the undisturbed one), `failures`, `seed`, `rounds`, `devices`
    and `network`.
    """
    report, make = Report(), partial(run, rounds=rounds, devices=devices, network=network)
    undisturbed = make(folder / "0", 0, failures=0, seed=seed)
    say(f"undisturbed: {rounds} rounds, model {undisturbed.models[-1][:16]}")
    while report.failures < failures:
        number, left = report.runs + 1, min(per_run, failures - report.failures)
        outcome = make(folder / str(number), number, failures=left, seed=seed + number)
        report.add(outcome, undisturbed)
        say(
            f"run {number}: {outcome.failures} failures, {report.failures} of {failures}; "
            f"lost {report.lost}, doubled {report.doubled}, forked {report.forked}, "
            f"other models {report.different}, late {report.late}"
        )
        if not report.different:
            shutil.rmtree(folder / str(number))
    return report


def _run_disturbed(folder: Path, number: int, **settings: Any) -> Outcome:
    return DisturbedRun(folder, persistent=number > 0 and number % 2 == 0, **settings).run()


campaign = partial(repeat, _run_disturbed)
