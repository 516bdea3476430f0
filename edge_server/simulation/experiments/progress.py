"""Progress of an experiment: a line per run; on a terminal also its round, or how many runs are at work."""

from dataclasses import dataclass
from typing import TextIO

from edge_server.config.units import duration_text
from edge_server.observability.figures import newest_figure_text
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments.cells import CellRun
from edge_server.simulation.experiments.experiment import Column


@dataclass(frozen=True)
class Lines:
    """Writes the progress to `stream`."""

    stream: TextIO

    def begin(self, number: int, count: int, run: CellRun) -> Watcher:
        """The watcher of a run, which writes on a terminal only."""
        head = f"[{number}/{count}] {_name(run)}"
        return RoundLine(head, self.stream)

    def at_work(self, busy: int, *, ended: int, count: int) -> None:
        """Overwrite the line with the number of runs at work, on a terminal; with none, clear it."""
        if self.stream.isatty():
            runs = "1 run" if busy == 1 else f"{busy} runs"
            text = f"{runs} at work, {ended} of {count} ended" if busy else ""
            print(f"\r\x1b[K{text}", end="", file=self.stream, flush=True)

    def end(self, number: int, run: CellRun, *, text: str, left_s: float | None) -> None:
        """Write the final line of a run."""
        left = f", about {duration_text(left_s)} left" if left_s else ""
        start = "\r\x1b[K" if self.stream.isatty() else ""
        print(f"{start}[{number}] {_name(run)}: {text}{left}", file=self.stream, flush=True)


@dataclass(frozen=True)
class RoundLine:
    """Displays the current round of one run."""

    head: str
    stream: TextIO

    def show(self, snapshot: Snapshot) -> None:
        """Overwrite the line with the current round, on a terminal."""
        if self.stream.isatty():
            figure = newest_figure_text(snapshot.history)
            text = f"{self.head}: round {snapshot.round} of {snapshot.rounds}" + (figure and f", {figure}")
            print(f"\r\x1b[K{text[:100]}", end="", file=self.stream, flush=True)


def _name(run: CellRun) -> str:
    column = "" if run.cell.column == Column().label else f", {run.cell.column}"
    return f"{run.cell.row}{column}, seed {run.seed}"
