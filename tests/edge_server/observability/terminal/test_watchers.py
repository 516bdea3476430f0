"""Everybody who watches a run is told of the same moments."""

import argparse
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.observability import watchers
from edge_server.observability.snapshot import Snapshot, Watcher

MOMENT = Snapshot("home", "run-1", "planning", 1, 3, 0.0)


class Witness:
    """Keeps what it was told."""

    def __init__(self) -> None:
        self.reported: list[Snapshot] = []

    def show(self, snapshot: Snapshot) -> None:
        self.reported.append(snapshot)


def test_all_are_told_and_leave_in_reverse_order(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    witnesses, left = [Witness(), Witness()], []

    def opener(index: int) -> watchers.Opener:
        @contextlib.contextmanager
        def opened(args: argparse.Namespace, out: Path) -> Iterator[Watcher]:
            assert out == tmp_path
            yield witnesses[index]
            left.append(index)

        return opened

    monkeypatch.setattr(watchers, "OPENERS", (opener(0), opener(1)))
    with watchers.watchers(argparse.Namespace(), tmp_path) as together:
        together.show(MOMENT)
    assert [witness.reported for witness in witnesses] == [[MOMENT], [MOMENT]]
    assert left == [1, 0]
