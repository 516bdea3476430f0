"""The live view of a run in a terminal, redrawn in place."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.live import Live

from edge_server.observability.snapshot import Snapshot
from edge_server.observability.terminal.final_summary import print_closing
from edge_server.observability.terminal.view import run_view


class PrettyDisplay:
    """Redraws one view in place and replaces it by the final tables at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: Snapshot | None = None
        # Drawn on each snapshot only: no refresh thread, no flicker.
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def show(self, snapshot: Snapshot) -> None:
        """Draw the newest snapshot to fit the terminal's current size."""
        self._last = snapshot
        options = self._console.options
        view = run_view(snapshot, options.size, ascii_only=options.ascii_only)
        self._live.update(view, refresh=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()
        print_closing(self._console, self._last)
