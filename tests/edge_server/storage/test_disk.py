"""Waiting until all files of a round are on disk."""

import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edge_client.storage.atomic_files import write_synced
from edge_server.storage import disk
from edge_server.storage.journal import Journal
from schemas.errors import EdgeError


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


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files may have 16 kB in this process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def write_state(folder: Path) -> None:
    write_synced(folder / "state.safetensors", bytes(20_000))


def write_journal(folder: Path) -> None:
    Journal(folder / "journal.sqlite").close()


@pytest.mark.parametrize(
    ("write", "name"), [(write_state, "state.safetensors"), (write_journal, "journal.sqlite")]
)
def test_a_limit_on_the_size_of_files_is_said_with_file_and_remedy(
    tmp_path: Path, small_files: None, write: Callable[[Path], None], name: str
) -> None:
    with pytest.raises(EdgeError, match="raise `ulimit -f`") as told, disk.told_in_words(tmp_path):
        write(tmp_path)
    assert str(tmp_path / name) in str(told.value)
    assert "files may have 0.01638 MB here" in str(told.value)
