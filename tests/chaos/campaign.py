"""Runs under blows until there were as many as asked for, each compared with an undisturbed one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from tests.chaos.episode import WEIGHTS, Episode, Outcome
from tests.chaos.nursery import Nursery


@dataclass
class Report:
    """Blows by kind, and seconds until each was recovered from."""

    runs: int = 0
    blows: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    seconds: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in WEIGHTS})

    def add(self, outcome: Outcome, undisturbed: Outcome) -> None:
        """Count a run; one that came to other models is `different`."""
        self.runs += 1
        self.blows += outcome.blows
        self.lost += outcome.lost
        self.doubled += outcome.doubled
        same = (outcome.models, outcome.made_of, outcome.final) == (
            undisturbed.models,
            undisturbed.made_of,
            undisturbed.final,
        )
        self.different += not same
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
    folder: Path, *, blows: int, rounds: int, per_run: int, seed: int, say: Callable[[str], None]
) -> Report:
    """Strike `blows` times, at most `per_run` times a run of so many rounds."""
    nursery, report = Nursery(), Report()
    try:
        undisturbed = Episode(folder / "undisturbed", nursery, rounds=rounds, blows=0, seed=seed).run()
        say(f"undisturbed: {rounds} rounds, model {undisturbed.models[-1][:16]}")
        while report.blows < blows:
            number = report.runs + 1
            outcome = Episode(
                folder / f"run-{number}",
                nursery,
                rounds=rounds,
                blows=min(per_run, blows - report.blows),
                seed=seed + number,
                persistent=number % 2 == 0,
            ).run()
            report.add(outcome, undisturbed)
            say(
                f"run {number}: {outcome.blows} blows, {report.blows} of {blows}; lost {report.lost}, "
                f"doubled {report.doubled}, other models {report.different}"
            )
            if not report.different:
                shutil.rmtree(folder / f"run-{number}")
    finally:
        nursery.close()
    return report
