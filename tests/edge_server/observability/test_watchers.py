"""All watchers of a run receive the same snapshots."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.observability import watchers
from edge_server.observability.snapshot import Snapshot, Watcher

MOMENT = Snapshot("home", "run-1", "planning", 1, 3, 0.0)


class RecordingWatcher:
    """A watcher that records the snapshots it receives."""

    def __init__(self) -> None:
        self.reported: list[Snapshot] = []

    def show(self, snapshot: Snapshot) -> None:
        self.reported.append(snapshot)


def test_all_watchers_receive_snapshots_and_close_in_reverse_order(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorders, closed = [RecordingWatcher(), RecordingWatcher()], []

    def opener(index: int) -> watchers.Opener:
        @contextlib.contextmanager
        def opened(args: argparse.Namespace, out: Path) -> Iterator[Watcher]:
            assert out == tmp_path
            yield recorders[index]
            closed.append(index)

        return opened

    monkeypatch.setattr(watchers, "OPENERS", (opener(0), opener(1)))
    with watchers.watchers(argparse.Namespace(), tmp_path) as together:
        together.show(MOMENT)
    assert [recorder.reported for recorder in recorders] == [[MOMENT], [MOMENT]]
    assert closed == [1, 0]
