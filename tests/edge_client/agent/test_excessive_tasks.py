"""A task that is too large for any device, or for this one's disk, is declined before anything is fetched."""

import shutil
import types
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.session.machine import SessionPhase
from edge_client.agent.session.snapshot import SessionSnapshot
from edge_client.storage import atomic_files
from edge_client.storage.atomic_files import Space
from schemas.errors import PeerError, Reason
from schemas.messages import Task, TaskReply
from schemas.messages.tasks import Increment
from schemas.tensors.chunks import MAX_BLOB_BYTES, BlobRef
from tests.edge_client.agent.session.by_hand import CHUNK, DEVICE, FEDERATION, task
from tests.edge_client.agent.test_agent_restart import Life, no_threads  # noqa: F401 (a fixture)

MB = 1_000_000


def blob(number: int, size: int = 5, chunk_bytes: int = CHUNK) -> BlobRef:
    return BlobRef(digest=f"{number:064x}", size=size, chunk_bytes=chunk_bytes)


EXCESSIVE = {
    "blobs": task(blobs={str(n): blob(n) for n in range(321)}),
    "chunks": task(blobs={"state": blob(1, MAX_BLOB_BYTES)}),
    "bytes": task(blobs={str(n): blob(n, MAX_BLOB_BYTES, 1024 * 1024) for n in range(5)}),
    "bytes of unpacked layers": task(
        blobs={"state": blob(1)},
        layers=tuple(Increment(blob="state", frame=n, unpacked=MAX_BLOB_BYTES) for n in range(5)),
    ),
    "bytes of the channel map": task(blobs={"state": blob(1), "channel-map": blob(2, 204 * MB)}),
    "bytes of a graph": task(blobs={"state": blob(1), "step-0": blob(2, 300 * MB)}),
}


def hear_refused(life: Life, offer: Task) -> TaskReply:
    life.hear(offer)
    (reply,) = life.published(TaskReply)
    assert (life.phase, life.session.receiving) == (SessionPhase.IDLE, {})
    return reply


@pytest.mark.parametrize("what", EXCESSIVE)
def test_a_task_beyond_a_bound_is_declined(what: str, tmp_path: Path) -> None:
    reply = hear_refused(Life(tmp_path), EXCESSIVE[what])
    assert (reply.accepted, reply.reason) == (False, Reason.OVERSIZED)
    assert f" {what}: a task has at most " in reply.detail


def test_such_a_task_of_an_earlier_process_is_forgotten(tmp_path: Path) -> None:
    snapshot = SessionSnapshot(federation=FEDERATION, device=DEVICE, task=EXCESSIVE["chunks"])
    (tmp_path / "task.json").write_text(snapshot.model_dump_json())
    life = Life(tmp_path)
    assert (life.phase, life.session.receiving) == (SessionPhase.IDLE, {})


def test_usual_tasks_are_within_the_bounds() -> None:
    # A gigabyte to a broker that takes only small packets, and a task with every frame for five tiers.
    assert task(blobs={"state": blob(1, 10**9, 15 * 1024)}).excess() == ""
    assert task(blobs={str(n): blob(n, 16 * MB, 256 * 1024) for n in range(256)}).excess() == ""


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Any:
    usage = types.SimpleNamespace(free=100 * MB)
    monkeypatch.setattr(atomic_files, "space_of", lambda _: Space(2000 * MB, usage.free))
    return usage


@pytest.mark.parametrize(("size", "unpacked"), [(40 * MB, None), (5, 40 * MB), (20 * MB, 20 * MB)])
def test_a_task_that_the_disk_has_no_room_for_is_declined(
    size: int, unpacked: int | None, disk: Any, tmp_path: Path
) -> None:
    # Of 100 MB that are free, 64 MiB stay so: 32.9 MB.
    ref = blob(1, size, 64 * 1024)
    offer = task(blobs={"state": ref}, layers=(Increment(blob="state", unpacked=unpacked),))
    reply = hear_refused(Life(tmp_path), offer)
    assert (reply.accepted, reply.reason) == (False, Reason.NO_SPACE)
    assert f"40 MB are needed on the disk of {tmp_path / 'blobs'}, 33 MB are free" in reply.detail
    disk.free = 200 * MB
    life = Life(tmp_path)
    life.hear(offer)
    assert life.phase is SessionPhase.FETCHING


def test_features_make_room_for_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    features = tmp_path / "features" / "some.features"
    features.parent.mkdir()
    features.write_bytes(bytes(8))
    monkeypatch.setattr(
        atomic_files, "space_of", lambda _: Space(2000 * MB, 100 * MB if features.exists() else 120 * MB)
    )
    life = Life(tmp_path)
    life.hear(task(blobs={"state": blob(1, 30 * MB, 64 * 1024)}))
    assert features.exists()
    life = Life(tmp_path)
    life.hear(task(2, blobs={"state": blob(2, 40 * MB, 64 * 1024)}))
    assert life.phase is SessionPhase.FETCHING
    assert not features.exists()


def test_files_of_a_task_that_is_replaced_go(disk: Any, tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.hear(task())
    life.receive(1)
    before = [entry.name for entry in (tmp_path / "blobs").iterdir()]
    assert any(name.endswith(".part") for name in before)
    life.hear(task(2, state=blob(7)))
    left = [path.name for path in (tmp_path / "blobs").iterdir() if path.suffix != ".spare"]
    assert left == []


def test_a_small_disk_keeps_a_twentieth(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(atomic_files, "space_of", lambda _: Space(100 * MB, 10 * MB))
    atomic_files.check_free(tmp_path, 5 * MB)
    with pytest.raises(PeerError, match=r"6 MB are needed on the disk of .*, 5 MB are free"):
        atomic_files.check_free(tmp_path, 6 * MB)


def test_the_free_space_is_that_of_the_disk(tmp_path: Path) -> None:
    found = atomic_files.space_of(tmp_path)
    assert 0 < found.free <= found.total
    assert found.total == shutil.disk_usage(tmp_path).total
