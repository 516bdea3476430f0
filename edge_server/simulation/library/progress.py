"""What a program sees of its run: a callback per round, and a bar in a notebook or a line on a terminal."""

import sys
from collections.abc import Callable
from html import escape
from typing import Any, TextIO

from edge_server.config.units import duration_text
from edge_server.observability.figures import newest_figure_text
from edge_server.observability.snapshot import Snapshot, Watcher
from edge_server.simulation.experiments.progress import RoundLine, StatusLine
from edge_server.storage.records import RoundRecord

OnRound = Callable[[RoundRecord], object]


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
