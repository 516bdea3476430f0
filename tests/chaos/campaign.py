"""Repeats disturbed runs until enough failures were injected, and compares each with an undisturbed run."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.chaos.disturbed_run import WEIGHTS, DisturbedRun, Outcome
from tests.chaos.processes import DEVICES, NETWORK


@dataclass
class Report:
    """Numbers of runs, failures and errors, and seconds to recover by kind of failure."""

    runs: int = 0
    failures: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in WEIGHTS})

    def add(self, outcome: Outcome, undisturbed: Outcome) -> None:
        """Count a run; it is `different` if its models are not those of the undisturbed run."""
        self.runs += 1
        self.failures += outcome.failures
        self.lost += outcome.lost
        self.doubled += outcome.doubled
        self.different += outcome.result != undisturbed.result
        for kind, seconds in outcome.seconds.items():
            self.seconds[kind] += seconds

    def rows(self) -> list[tuple[str, int, float, float]]:
        """Kind, recoveries, median and maximum of seconds."""
        return [
            (kind, len(seconds), median(seconds), max(seconds))
            for kind, seconds in self.seconds.items()
            if seconds
        ]


def campaign(
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
    """Inject `failures` failures, at most `per_run` into each run of `rounds` rounds."""
    report = Report()
    undisturbed = DisturbedRun(
        folder / "undisturbed", rounds=rounds, failures=0, seed=seed, devices=devices, network=network
    ).run()
    say(f"undisturbed: {rounds} rounds, model {undisturbed.models[-1][:16]}")
    while report.failures < failures:
        number = report.runs + 1
        outcome = DisturbedRun(
            folder / f"run-{number}",
            rounds=rounds,
            failures=min(per_run, failures - report.failures),
            seed=seed + number,
            devices=devices,
            persistent=number % 2 == 0,
            network=network,
        ).run()
        report.add(outcome, undisturbed)
        say(
            f"run {number}: {outcome.failures} failures, {report.failures} of {failures}; "
            f"lost {report.lost}, doubled {report.doubled}, other models {report.different}"
        )
        if not report.different:
            shutil.rmtree(folder / f"run-{number}")
    return report
