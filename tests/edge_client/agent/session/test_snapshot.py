"""The snapshot that survives a kill, and snapshots that are invalid."""

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from edge_client.agent.session.snapshot import SessionSnapshot, WorkStarts
from edge_client.agent.state_store import SnapshotFile
from schemas.errors import Reason
from tests.edge_client.agent.session import by_hand
from tests.edge_client.agent.session.by_hand import task

NOTHING = SessionSnapshot(federation=by_hand.FEDERATION, device=by_hand.DEVICE)
FULL = NOTHING.model_copy(
    update={"task": task(), "result": by_hand.update(), "runs": ("run-1",), "attempts": {"run-1": 1}}
)


def load(path: Path) -> SessionSnapshot:
    return SnapshotFile(path / "task.json").load_snapshot(by_hand.FEDERATION, by_hand.DEVICE)


@pytest.mark.parametrize("result", [None, by_hand.update(), by_hand.delivery(attempt=1)])
def test_a_saved_snapshot_is_loaded_by_another_process(tmp_path, result):
    memory = FULL.model_copy(update={"result": result})
    assert SnapshotFile(tmp_path / "task.json").save(memory)
    assert load(tmp_path) == memory


def test_a_missing_file_gives_an_empty_snapshot(tmp_path, caplog):
    assert load(tmp_path) == NOTHING
    assert caplog.text == ""


def test_an_unchanged_snapshot_is_not_written_again(tmp_path):
    file = SnapshotFile(tmp_path / "task.json")
    assert file.save(FULL)
    (tmp_path / "task.json").unlink()
    assert not file.save(SessionSnapshot.model_validate(FULL.model_dump()))
    assert not (tmp_path / "task.json").exists()
    assert file.save(NOTHING)
    assert load(tmp_path) == NOTHING


def test_a_snapshot_is_synced_only_where_a_power_cut_would_lose_something(tmp_path, monkeypatch):
    waited = []
    monkeypatch.setattr("edge_client.storage.atomic_files.sync", waited.append)
    file = SnapshotFile(tmp_path / "task.json")

    def waits(memory: SessionSnapshot) -> bool:
        waited.clear()
        assert file.save(memory)
        return bool(waited)

    begun = FULL.model_copy(update={"result": None})
    assert not waits(begun)
    assert waits(FULL)
    assert not waits(NOTHING)
    assert waits(begun.model_copy(update={"masked": {"run-1": 3}}))
    assert not waits(NOTHING.model_copy(update={"masked": {"run-1": 3}}))
    assert SnapshotFile(tmp_path / "fresh.json").save(begun.model_copy(update={"masked": {"run-1": 3}}))
    assert waited


def changed(**fields) -> bytes:
    return json.dumps({**json.loads(FULL.model_dump_json()), **fields}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 300,
        FULL.model_dump_json().encode()[:-20],
        b"[]",
        changed(version=2),
        changed(mood="good"),
        changed(federation="away"),
        changed(device="another"),
        changed(task=None),
        changed(result={**json.loads(by_hand.update(2).model_dump_json())}),
    ],
    ids=[
        "empty",
        "zeros",
        "torn",
        "list",
        "version",
        "field",
        "federation",
        "device",
        "no-task",
        "other-task",
    ],
)
def test_an_invalid_snapshot_is_ignored_with_a_warning(tmp_path, content, caplog):
    (tmp_path / "task.json").write_bytes(content)
    assert load(tmp_path) == NOTHING
    assert "task.json is ignored" in caplog.text


def test_a_full_disk_loses_only_the_snapshot(tmp_path, monkeypatch, caplog):
    file = SnapshotFile(tmp_path / "task.json")
    file.save(FULL)

    def full(*args, **more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    assert file.save(NOTHING)
    monkeypatch.undo()
    # The older snapshot is gone as well, because its task is over.
    assert list(tmp_path.iterdir()) == []
    assert "No space left" in caplog.text


def test_a_snapshot_lists_the_blobs_to_retain():
    assert NOTHING.blobs() == frozenset()
    assert FULL.blobs() == {by_hand.STATE.digest, by_hand.RESULT.digest}


def test_a_result_of_another_task_is_refused():
    with pytest.raises(ValidationError, match="another task"):
        SessionSnapshot(
            federation=by_hand.FEDERATION, device=by_hand.DEVICE, task=task(), result=by_hand.update(2)
        )


def test_a_working_session_stores_its_task():
    starts = WorkStarts(run=by_hand.RUN, attempt=1)
    assert by_hand.WORKING.snapshot == FULL.model_copy(update={"result": None, "starts": starts})


def test_the_reason_for_a_full_disk_is_a_stable_code():
    assert Reason.NO_SPACE == "no-space"
