"""Waiting until all files of a round are on disk."""

from pathlib import Path

import pytest

from edge_server.storage import disk


def test_files_are_synced_before_their_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / "models" / "round-0001" / "manifest.json", tmp_path / "checkpoints" / "one"]
    waited: list[Path] = []
    monkeypatch.setattr(disk, "sync", waited.append)
    disk.wait_for_disk(files)
    assert sorted(waited[:2]) == sorted(files)
    # The folders of both files, then the parents of these folders.
    assert sorted(waited[2:]) == sorted(
        [tmp_path / "models" / "round-0001", tmp_path / "models", tmp_path / "checkpoints", tmp_path]
    )


def test_an_error_of_a_full_disk_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(disk, "sync", full)
    with pytest.raises(OSError, match="no space left"):
        disk.wait_for_disk([tmp_path / "a"])
