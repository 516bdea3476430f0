"""One wait of the disk for all files of a round."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_server.storage import sync


def test_files_are_waited_for_before_the_names_that_lead_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / "models" / "round-0001" / "manifest.json", tmp_path / "checkpoints" / "one"]
    waited: list[Path] = []
    monkeypatch.setattr(sync, "sync", waited.append)
    sync.wait_for_disk(files)
    assert sorted(waited[:2]) == sorted(files)
    # The folders of both, and those that these are named in.
    assert sorted(waited[2:]) == sorted(
        [tmp_path / "models" / "round-0001", tmp_path / "models", tmp_path / "checkpoints", tmp_path]
    )


def test_a_disk_that_takes_no_more_is_heard_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "no space left")

    monkeypatch.setattr(sync, "sync", full)
    with pytest.raises(OSError, match="no space left"):
        sync.wait_for_disk([tmp_path / "a"])
