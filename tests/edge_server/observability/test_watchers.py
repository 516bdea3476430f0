"""The watchers that a command asks for receive the same snapshots."""

import argparse
import contextlib
from collections.abc import Callable, Iterator
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


def test_the_watchers_asked_for_receive_snapshots_and_close_before_the_display(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    recorders: dict[str, RecordingWatcher] = {}
    closed = []

    def opener(name: str) -> Callable[..., contextlib.AbstractContextManager[Watcher]]:
        @contextlib.contextmanager
        def opened(*args: object, **more: object) -> Iterator[Watcher]:
            recorders[name] = RecordingWatcher()
            yield recorders[name]
            closed.append(name)

        return opened

    for name in ("make_display", "dashboard_watcher", "metrics_watcher", "tracker_watcher"):
        monkeypatch.setattr(watchers, name, opener(name))
    args = argparse.Namespace(
        format="table", dashboard=None, metrics="127.0.0.1:0", metrics_devices=False, write=["tensorboard=x"]
    )
    with watchers.watchers(args, tmp_path) as together:
        together.show(MOMENT)
    assert {name: recorder.reported for name, recorder in recorders.items()} == {
        "make_display": [MOMENT],
        "metrics_watcher": [MOMENT],
        "tracker_watcher": [MOMENT],
    }
    assert closed == ["tracker_watcher", "metrics_watcher", "make_display"]
