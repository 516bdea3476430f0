"""What is seen of a run while it goes on."""

import io
from typing import Any

import pytest

from edge_server.observability.snapshot import Snapshot
from edge_server.simulation.library.run import NotebookBar, TerminalLine, progress_watcher


class Shown:
    """What a cell shows, replaced in place."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def __call__(self, text: str, handle: Any) -> Any:
        assert handle is (self if self.texts else None)
        self.texts.append(text)
        return self


def test_a_notebook_has_a_bar_with_the_time_left_that_is_replaced_as_it_changes() -> None:
    shown = Shown()
    bar = NotebookBar(shown)
    now = Snapshot("f", "r", "collecting", 1, 3, 0.0, left_s=90.0)
    bar.show(now)
    bar.show(now)
    assert shown.texts == ['<progress value="0" max="3"></progress> 0 of 3 rounds, about 1 min 30 s left']


def test_a_terminal_has_a_line_and_a_file_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    watcher = progress_watcher(stream)
    assert isinstance(watcher, TerminalLine)
    watcher.show(Snapshot("f", "r", "collecting", 1, 3, 0.0))
    assert stream.getvalue() == ""
    monkeypatch.setattr(stream, "isatty", lambda: True)
    watcher.show(Snapshot("f", "r", "collecting", 1, 3, 0.0))
    assert stream.getvalue().endswith("simulation: round 1 of 3")
