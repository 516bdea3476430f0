"""The display of a run: a live view in a terminal, plain lines in a pipe, JSON for programs."""

import os
import sys
from types import TracebackType
from typing import Literal, Protocol, Self, TextIO

from rich.console import Console
from rich.live import Live

from edge_server.observability.snapshot import Snapshot
from edge_server.observability.terminal.final_summary import print_closing
from edge_server.observability.terminal.log_lines import PlainDisplay
from edge_server.observability.terminal.view import run_view
from schemas.base import Frozen


class Display(Protocol):
    """Shows one run; leaving the context shows its end. All calls come from one thread."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None: ...

    def show(self, snapshot: Snapshot) -> None:
        """Show the newest snapshot; called up to four times a second."""
        ...


def make_display(*, stream: TextIO | None = None, format: Literal["table", "json"] = "table") -> Display:
    """The display for the stream (default: standard output) and the format."""
    # Looked up at call time, so that a redirected standard output is used.
    out = sys.stdout if stream is None else stream
    if format == "json":
        return JsonLines(out)
    if out.isatty() and os.environ.get("TERM") not in ("dumb", "unknown"):
        return PrettyDisplay(Console(file=out))
    return PlainDisplay(out)


class JsonLines:
    """Writes one JSON document per line; only the summary has an `outcome`."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._last: Snapshot | None = None
        self._closed = 0

    def __enter__(self) -> Self:
        return self

    def show(self, snapshot: Snapshot) -> None:
        """Write the rounds closed since the last call."""
        for record in snapshot.history:
            if record.round > self._closed:
                self._write(record)
                self._closed = record.round
        self._last = snapshot

    def __exit__(self, *_: object) -> None:
        if self._last is not None and self._last.summary is not None:
            self._write(self._last.summary)

    def _write(self, value: Frozen) -> None:
        print(value.model_dump_json(), file=self._stream, flush=True)


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
