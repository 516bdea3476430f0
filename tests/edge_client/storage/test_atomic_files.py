"""Atomic writes: files are complete at any time."""

from pathlib import Path

import pytest

from edge_client.storage import atomic_files
from edge_client.storage.atomic_files import sweep, write_synced


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_synced(tmp_path / "model.onnx", b"old")
    monkeypatch.setattr(atomic_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_synced(tmp_path / "model.onnx", b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("model.onnx", b"old")]


def test_only_temporary_files_of_killed_writes_are_swept(tmp_path: Path) -> None:
    left = ["", "blobs", "models", "models/waiting", "epochs", "private/run-1", "serving", "serving/a"]
    mine = ["notes.part", ".hidden.part", "blobs/0123.part", "elsewhere/.model.onnx.12.part"]
    for name in mine + [f"{folder}/.model.onnx.{4711}.part".lstrip("/") for folder in left]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    sweep(tmp_path)
    remaining = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert remaining == sorted(mine)
