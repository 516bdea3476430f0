"""The display of a run: a live view in a terminal, plain lines in a pipe, JSON for programs."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Literal, Protocol, Self, TextIO

from rich.console import Console

from edge_server.observability.snapshot import Snapshot
from edge_server.observability.terminal.json_lines import JsonLines
from edge_server.observability.terminal.live_view import PrettyDisplay
from edge_server.observability.terminal.log_lines import PlainDisplay


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
