"""Reused files contain exactly what was written last, whatever they contained before."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from edge_client.storage.atomic_files import written_aside
from edge_client.storage.file_recycling import Spares, opened_over


@pytest.fixture
def spares(tmp_path: Path) -> Spares:
    return Spares(tmp_path)


def spare(spares: Spares, path: Path, data: bytes) -> int:
    """Add a spare file that contains `data`; return its inode number."""
    path.write_bytes(data)
    number = path.stat().st_ino
    spares.add(path)
    return number


@pytest.mark.parametrize("held", [b"", b"less", b"a great deal more than what follows"])
def test_nothing_of_the_earlier_content_is_left(spares, tmp_path, held):
    number = spare(spares, tmp_path / "old", held)
    spares.turn()
    with written_aside(tmp_path / "new", opened=partial(spares.written, size=8)) as file:
        file.write(b"new ")
        file.write(b"text")
    assert (tmp_path / "new").read_bytes() == b"new text"
    assert (tmp_path / "new").stat().st_ino == number


def test_the_spare_nearest_in_size_is_used(spares, tmp_path):
    numbers = {size: spare(spares, tmp_path / f"of-{size}", bytes(size)) for size in (10, 100, 1000)}
    spares.turn()
    for size, expected in ((110, 100), (5000, 1000), (0, 10)):
        assert spares.become(tmp_path / "taken", size)
        assert (tmp_path / "taken").stat().st_ino == numbers[expected]
    assert not spares.become(tmp_path / "taken", 0)


def test_an_incompletely_written_file_is_removed(spares, tmp_path):
    spare(spares, tmp_path / "old", b"held")
    spares.turn()

    def half_of_the_data() -> Iterator[bytes]:
        yield b"be"
        raise RuntimeError

    def write() -> None:
        with written_aside(tmp_path / "new", opened=partial(spares.written, size=4)) as file:
            file.writelines(half_of_the_data())

    with pytest.raises(RuntimeError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_without_spares_files_are_new(tmp_path):
    with written_aside(tmp_path / "new", opened=opened_over(None, {})) as file:
        file.write(b"text")
    assert (tmp_path / "new").read_bytes() == b"text"


def test_a_file_that_cannot_be_moved_to_the_folder_is_removed(tmp_path, monkeypatch):
    """Moving fails, as it does between two disks."""
    spares = Spares(tmp_path)

    def another_disk(path: Path, to: Path) -> None:
        raise OSError(18, "Invalid cross-device link")

    with monkeypatch.context() as late:
        late.setattr(Path, "replace", another_disk)
        spare(spares, tmp_path / "old", b"held")
    spares.turn()
    assert list(tmp_path.iterdir()) == []
    spare(spares, tmp_path / "old", b"held")
    spares.turn()
    with monkeypatch.context() as late:
        late.setattr(Path, "replace", another_disk)
        assert not spares.become(tmp_path / "new", 4)
    assert list(tmp_path.iterdir()) == []
