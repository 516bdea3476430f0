"""What an idle device does: it removes old blobs, and looks at data that grows."""

import os
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_client.agent.session import events
from edge_client.agent.session.machine import Session, SessionPhase
from edge_client.agent.session_runner import IDLE_S, LOOK_S, BlobWatch, DataWatch
from edge_client.storage.blob_store import BlobStore
from edge_client.transport.broker_link import LinkUp


class Runner:
    """A runner with the blobs of one task, that were written `age` seconds ago."""

    def __init__(self, folder: Path, age: float, *, restored: bool = True) -> None:
        self.blobs, self.has_restored_session, self.steps = (
            BlobStore(folder, durable=False),
            restored,
            list[Any](),
        )
        self.ref = self.blobs.put_blob(b"weights")
        written = time.time() - age
        os.utime(self.blobs.blob_path(self.ref.digest), (written, written))
        self.session = Session("home", "pi", held=self.blobs.digests())

    @property
    def state_store(self) -> "Runner":
        return self

    def step(self, event: object) -> None:
        self.steps.append(event)

    def tick(self, now: float, session: Session | None = None) -> bool:
        """Whether the blobs are still there."""
        self.watch.tick(now, session or self.session)
        return bool(self.blobs.digests())

    @property
    def watch(self) -> BlobWatch:
        self._watch = getattr(self, "_watch", None) or BlobWatch(cast(Any, self))
        return self._watch


@pytest.mark.parametrize(("age", "stays"), [(IDLE_S - 60, True), (IDLE_S + 60, False)])
def test_blobs_go_after_a_month_without_a_task(tmp_path: Path, age: float, stays: bool) -> None:
    runner = Runner(tmp_path, age)
    assert runner.tick(1.0) is stays
    assert runner.steps == ([] if stays else [events.BlobsDiscarded(frozenset())])


def test_blobs_of_a_task_or_of_an_earlier_process_stay(tmp_path: Path) -> None:
    runner = Runner(tmp_path / "one", 2 * IDLE_S)
    assert runner.tick(1.0, replace(runner.session, phase=SessionPhase.WORKING))
    assert not Runner(tmp_path / "two", 2 * IDLE_S).tick(1.0)
    assert Runner(tmp_path / "three", 2 * IDLE_S, restored=False).tick(1.0)


def test_the_folder_is_looked_at_once_an_hour(tmp_path: Path) -> None:
    runner = Runner(tmp_path, 0)
    assert runner.tick(1.0)
    os.utime(runner.blobs.blob_path(runner.ref.digest), (1, 1))
    assert runner.tick(1.0 + LOOK_S / 2)
    assert not runner.tick(1.0 + LOOK_S)


IDLE = Session("federation", "pi")


def looks(*ticks: tuple[float, Session], every_s: float = 30.0) -> list[float]:
    """When the watch looks, for a device that is connected at 100 s."""
    seen: list[float] = []
    now = [0.0]
    worker: Any = SimpleNamespace(look=lambda context: seen.append(now[0]))
    watch = DataWatch(worker, cast(Any, SimpleNamespace(context=None)), every_s=every_s)
    watch.tick(50.0, IDLE)
    watch.on_connected(LinkUp(1, None), 100.0)
    for now[0], session in ticks:
        watch.tick(now[0], session)
    return seen


def test_it_looks_at_intervals_once_connected() -> None:
    assert looks((129, IDLE), (130, IDLE), (131, IDLE), (161, IDLE)) == [130, 161]


def test_it_waits_while_there_is_work() -> None:
    busy = replace(IDLE, phase=SessionPhase.WORKING)
    assert looks((130, busy), (140, busy), (141, IDLE)) == [141]


def test_no_interval_means_no_looks() -> None:
    assert looks((10_000, IDLE), every_s=0) == []
