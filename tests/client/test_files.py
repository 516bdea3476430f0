"""Files that are whole at any time."""

from pathlib import Path

import pytest

from edge_client import files
from edge_client.files import write_synced


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_synced(tmp_path / "model.onnx", b"old")
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_synced(tmp_path / "model.onnx", b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("model.onnx", b"old")]
