"""Many seeds on all cores: progress, and what was found, shrunk to tests."""

import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.storm.mutants import MUTANTS, Mutant
from tests.storm.seeds import faults_of, scenario_of
from tests.storm.shrink import as_row, shrink
from tests.storm.world import Outcome, play

BATCH = 20
PROGRESS_S = 5.0
MAX_FOUND = 5
"""Findings after which a campaign stops."""


@dataclass
class Tally:
    """What a campaign has done: seeds, virtual seconds, events, outcomes, and the seeds that have failed."""

    seeds: int = 0
    virtual_s: float = 0.0
    events: int = 0
    faults: int = 0
    failed: list[int] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)

    def add(self, results: Iterable[tuple[int, int, Outcome]]) -> None:
        """Count what a worker has done."""
        for seed, faults, outcome in results:
            self.seeds += 1
            self.faults += faults
            self.virtual_s += outcome.seconds
            self.events += outcome.events
            if outcome.violation is not None:
                self.failed.append(seed)
                print(f"seed {seed}: {outcome.violation}", file=sys.stderr, flush=True)

    def __str__(self) -> str:
        seconds = time.monotonic() - self.began
        return (
            f"{self.seeds} seeds, {self.faults} faults, {self.events} events, {self.virtual_s / 3600:.1f}"
            f" virtual hours in {seconds:.0f} s ({self.seeds / max(seconds, 1e-9):.1f} seeds per second):"
            f" {len(self.failed)} failed"
        )


def play_seed(seed: int) -> tuple[int, int, Outcome]:
    """The seed, its number of faults, and what became of it."""
    scenario = scenario_of(seed)
    faults = faults_of(scenario)
    return seed, len(faults), play(scenario, faults)


def _play_batch(seeds: range) -> list[tuple[int, int, Outcome]]:
    return [play_seed(seed) for seed in seeds]


def _batches(first: int, count: int) -> Iterator[range]:
    for start in range(first, first + count, BATCH):
        yield range(start, min(start + BATCH, first + count))


@contextmanager
def workers(count: int) -> Iterator[Any]:
    """Processes that do not share anything; Ctrl-C is the parent's."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(count, initializer=_ignore_interrupts) as pool:
        yield pool


def _ignore_interrupts() -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)


def storm(count: int, *, first: int = 0, processes: int | None = None) -> Tally:
    """Play seeds from `first` on; prints progress, and every finding as a test. Ctrl-C ends it early."""
    tally = Tally()
    printed = time.monotonic()
    try:
        with workers(processes or os.cpu_count() or 1) as pool:
            for results in pool.imap_unordered(_play_batch, _batches(first, count)):
                tally.add(results)
                if time.monotonic() >= printed + PROGRESS_S:
                    printed = time.monotonic()
                    print(tally, file=sys.stderr, flush=True)
                if len(tally.failed) >= MAX_FOUND:
                    break
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    print(tally, flush=True)
    for seed in sorted(tally.failed)[:MAX_FOUND]:
        print(f"\n{shrunk_test(seed)}", flush=True)
    return tally


def shrunk_test(seed: int) -> str:
    """A failing seed as the smallest test found."""
    scenario = scenario_of(seed)
    faults = faults_of(scenario)
    _, _, outcome = play_seed(seed)
    kind = kind_of(outcome)
    small, few = shrink(scenario, faults, lambda s, f: kind_of(play(s, f)) == kind)
    return as_row(small, few, play(small, few).violation or "")


def kind_of(outcome: Outcome) -> str:
    """What sort of violation it is: shrinking must not exchange one for another."""
    words = (outcome.violation or "").replace(":", "").split()
    return " ".join(word for word in words[:4] if not any(letter.isdigit() for letter in word))


Hunted = tuple[str, int | None, str]
"""A mutant's name, the seeds until it is found (None: not), and the violation."""


def hunt(name: str, most: int) -> Hunted:
    """Look for the first seed that finds a mutant, and nothing without it."""
    mutant: Mutant = MUTANTS[name]
    for seed in range(most):
        if mutant.sites and not scenario_of(seed).gateways:
            continue
        with mutant.in_place():
            _, _, outcome = play_seed(seed)
        if outcome.violation is not None and play_seed(seed)[2].violation is None:
            return name, seed + 1, outcome.violation
    return name, None, ""


def hunt_all(most: int, names: Sequence[str], *, processes: int | None = None) -> list[Hunted]:
    """Hunt these mutants on all cores; prints each result."""
    with workers(processes or os.cpu_count() or 1) as pool:
        found = []
        for row in pool.imap_unordered(partial(hunt, most=most), names):
            found.append(row)
            print(f"{row[0]}: {row[1] or 'not found'}", file=sys.stderr, flush=True)
    return sorted(found, key=lambda row: names.index(row[0]))


def table(found: Iterable[Hunted], most: int) -> str:
    """The hunt's results as a Markdown table."""
    lines = ["| mutant | what is broken | seeds | what the storm says |", "| --- | --- | --- | --- |"]
    for name, seeds, violation in found:
        after = str(seeds) if seeds else f"not in {most}"
        said = " ".join(violation.split())[:110].replace("|", "/")
        lines.append(f"| `{name}` | {MUTANTS[name].broken} | {after} | {said} |")
    return "\n".join(lines) + "\n"
