"""Progress of an experiment: a line per run, and its round or how many runs are at work, with the time left.

A terminal shows these at all times, a file once a minute.
"""

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from edge_server.config.units import duration_text
from edge_server.observability.figures import newest_figure_text
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments import cells, experiment

FILE_EVERY_S = 60


class StatusLine:
    """What runs now: the last line of a terminal, a line a minute in a file."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream, self._clock, self._written_at = stream, clock, clock()

    def write(self, text: str) -> None:
        """Overwrite the line, or write one if a minute has passed; an empty text clears it."""
        if self._stream.isatty():
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{text[:width]}", end="", file=self._stream, flush=True)
        elif text and self._clock() - self._written_at >= FILE_EVERY_S:
            self._written_at = self._clock()
            print(text, file=self._stream, flush=True)


class Lines:
    def __init__(self, stream: TextIO) -> None:
        self._stream, self._status = stream, StatusLine(stream)

    def begin(self, number: int, count: int, run: cells.CellRun) -> Watcher:
        return RoundLine(f"[{number}/{count}] {_name(run)}", self._status)

    def at_work(self, busy: int, *, ended: int, count: int, left_s: float | None) -> None:
        """Show the number of runs at work; with none, clear the line."""
        runs = "1 run" if busy == 1 else f"{busy} runs"
        self._status.write(
            f"{runs} at work, {ended} of {count} ended{_time_left_text(left_s)}" if busy else ""
        )

    def end(self, number: int, run: cells.CellRun, *, text: str, left_s: float | None) -> None:
        start = "\r\x1b[K" if self._stream.isatty() else ""
        print(
            f"{start}[{number}] {_name(run)}: {text}{_time_left_text(left_s)}", file=self._stream, flush=True
        )


@dataclass(frozen=True)
class RoundLine:
    """Displays the current round of one run."""

    head: str
    status: StatusLine

    def show(self, snapshot: Snapshot) -> None:
        figure, left = (
            newest_figure_text(snapshot.history),
            _time_left_text(snapshot.left_s, "left in this run"),
        )
        self.status.write(f"{self.head}: {snapshot.progress}{left}" + (figure and f", {figure}"))


def _time_left_text(seconds: float | None, words: str = "left") -> str:
    return f", about {duration_text(seconds)} {words}" if seconds else ""


def _name(run: cells.CellRun) -> str:
    column = "" if run.cell.column == experiment.Column().label else f", {run.cell.column}"
    return f"{run.cell.row}{column}, seed {run.seed}"
