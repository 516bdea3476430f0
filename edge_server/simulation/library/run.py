"""A run as a program sees it: while it goes on, and when it has ended, read from its folder."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from edge_server.config.units import bytes_text, duration_text
from edge_server.observability.figures import (
    leading_metric,
    measured_figures,
    measured_name,
    newest_figure_text,
)
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments.progress import RoundLine, StatusLine
from edge_server.simulation.library.extras import data_frame, new_axes
from edge_server.storage import records, run_files

# What a program sees of its run: a callback per round, and a bar in a notebook or a line on a terminal.

OnRound = Callable[[records.RoundRecord], object]


class CallbackFailed(BaseException):
    """A user's callback has raised `error`, which ends the run where it is."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class EachRound:
    """Calls `on_round` with the record of each round after round `after`, once."""

    def __init__(self, on_round: OnRound, after: int) -> None:
        self._on_round, self._after = on_round, after

    def show(self, snapshot: Snapshot) -> None:
        for record in snapshot.history:
            if record.round > self._after:
                self._after = record.round
                try:
                    self._on_round(record)
                except Exception as error:
                    raise CallbackFailed(error) from error


def progress_watcher(stream: TextIO) -> Watcher:
    """The progress of a run, where somebody can see it: in a notebook, or on a terminal."""
    # Imported by a notebook's kernel already; nobody else needs it.
    ipython: Any = sys.modules.get("IPython")
    shell = ipython and ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return TerminalLine(stream)
    return NotebookBar(_show_html)


def _show_html(text: str, handle: Any) -> Any:
    """Show HTML in the cell that runs, or replace what `handle` shows."""
    from IPython import display

    ipython: Any = display
    html = ipython.HTML(text)
    if handle is None:
        return ipython.display(html, display_id=True)
    handle.update(html)
    return handle


class NotebookBar:
    """A bar that `show_html(text, handle)` shows or replaces: rounds, newest figure, time left."""

    def __init__(self, show_html: Callable[[str, Any], Any]) -> None:
        self._show_html, self._handle, self._last = show_html, None, ""

    def show(self, snapshot: Snapshot) -> None:
        done, most = len(snapshot.history), snapshot.rounds
        left = snapshot.left_s if snapshot.summary is None else None
        parts = [
            f"{done} of {most} rounds" if most else f"{done} rounds",
            newest_figure_text(snapshot.history),
            f"about {duration_text(left)} left" if left else "",
            snapshot.summary.outcome if snapshot.summary else "",
        ]
        bar = f'<progress value="{done}" max="{most}"></progress> ' if most else ""
        text = bar + escape(", ".join(filter(None, parts)))
        if text != self._last:
            self._last = text
            self._handle = self._show_html(text, self._handle)


class TerminalLine:
    """A line on a terminal, which is cleared at the end."""

    def __init__(self, stream: TextIO) -> None:
        self._status = StatusLine(stream)
        self._line = RoundLine("simulation", self._status)

    def show(self, snapshot: Snapshot) -> None:
        if snapshot.summary is None:
            self._line.show(snapshot)
        else:
            self._status.write("")


if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from edge_server.simulation.library.extras import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """A run that has ended, in its folder.

    `summary` has its results, `rounds` a `RoundRecord` per round. A notebook shows it as a table.
    """

    folder: Path
    summary: records.Summary
    rounds: tuple[records.RoundRecord, ...]

    @property
    def history(self) -> "DataFrame":
        """The rounds as a pandas DataFrame, a line per round; `RoundRecord` has the names of its columns.

        Raises `ConfigError` without pandas, which `rounds` does not need.
        """
        # Fields that a dump leaves out where they are empty have a column too.
        rows = [dict(record) | record.model_dump() for record in self.rounds]
        return data_frame([{name: row[name] for name in records.RoundRecord.model_fields} for row in rows])

    @property
    def models(self) -> Mapping[int, Path]:
        """The ONNX file of each tier; empty where the run exported none."""
        return {tier: self.folder / path for tier, path in sorted(self.summary.onnx.items())}

    def plot(self, axes: "Axes | None" = None, **style: Any) -> "Axes":
        """Draw the leading test figure by round into new matplotlib axes, or into these.

        `style` is that of `Axes.plot`. Raises `ConfigError` without matplotlib.
        """
        axes = new_axes() if axes is None else axes
        metric = leading_metric(self.rounds)
        points = [
            (record.round, record.test_metrics[metric.name])
            for record in self.rounds
            if metric.name in record.test_metrics
        ]
        numbers, values = zip(*points, strict=True) if points else ((), ())
        axes.plot(numbers, values, **{"marker": "o" if len(points) == 1 else "", **style})
        axes.set(xlabel="round", ylabel=f"test {metric.name}")
        axes.locator_params("x", integer=True)
        axes.grid(alpha=0.3)
        return axes

    @property
    def facts(self) -> dict[str, str]:
        """What a notebook shows of the run, as texts by name."""
        last, best = measured_figures(self.summary)
        return {
            "outcome": f"{self.summary.outcome} {self.summary.detail}".strip(),
            "rounds": str(self.summary.rounds),
            measured_name(self.summary): last,
            "best": best,
            "up, down": f"{bytes_text(self.summary.uplink_bytes)}, {bytes_text(self.summary.downlink_bytes)}",
            "time": duration_text(self.summary.duration_s),
        }

    def __repr__(self) -> str:
        facts = ", ".join(f"{name} {value}" for name, value in self.facts.items() if value)
        return f"<Run {self.folder}: {facts}>"

    def _repr_html_(self) -> str:
        return html_rows([{"run": str(self.folder), **self.facts}])


def html_rows(rows: list[dict[str, str]]) -> str:
    """A table of these rows, which have equal keys, for a notebook."""
    heads = "".join(f"<th>{escape(name)}</th>" for name in rows[0])
    lines = (f"<tr>{''.join(f'<td>{escape(text)}</td>' for text in row.values())}</tr>" for row in rows)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def load_run(folder: str | Path) -> Run:
    """Read the folder of a run that has ended; raises `ConfigError` for a missing or broken file."""
    files = run_files.read_run_files(Path(folder))
    return Run(Path(folder), files.summary, files.history)
