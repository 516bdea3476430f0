"""The spool: self-contained rounds; the oldest are deleted when the byte budget is exceeded."""

from pathlib import Path

import pytest

from edge_client.storage.file_recycling import Spares
from edge_server.storage.update_archive import BEFORE, MODEL, UpdateArchive

UPDATE = "a" * 64


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, list[Path]]:
    """Create a state of 20 bytes, a model of 80 and an update of 50."""
    state, model, update = (tmp_path / name for name in ("state", "model", UPDATE))
    state.write_bytes(b"s" * 20)
    model.write_bytes(b"m" * 80)
    update.write_bytes(b"u" * 50)
    return state, model, [update]


def test_a_round_is_stored_with_the_state_and_the_model_before_it(tmp_path, files):
    state, model, (update,) = files
    spool = UpdateArchive(tmp_path / "spool", 1000)
    spool.keep(7, *files)
    for path in (state, model, update):
        path.unlink()
    folder = spool.folder(7)
    assert (folder / BEFORE).read_bytes() == b"s" * 20
    assert (folder / MODEL).read_bytes() == b"m" * 80
    assert (folder / UPDATE).read_bytes() == b"u" * 50


def test_storing_a_round_twice_changes_nothing(tmp_path, files):
    spool = UpdateArchive(tmp_path / "spool", 1000)
    for _ in range(2):
        spool.keep(1, *files)
    assert sorted(path.name for path in spool.folder(1).iterdir()) == [UPDATE, BEFORE, MODEL]


def test_the_oldest_rounds_are_deleted_when_the_budget_is_exceeded(tmp_path, files):
    # 150 bytes a round: two are 300, a third would be 450.
    spool = UpdateArchive(tmp_path / "spool", 310)
    for number in (8, 9, 10):
        spool.keep(number, *files)
    assert [spool.folder(number).exists() for number in (8, 9, 10)] == [False, True, True]


def test_the_files_of_a_deleted_round_are_overwritten(tmp_path, files):
    spares = Spares(tmp_path)
    spool = UpdateArchive(tmp_path / "spool", 1, spares=spares)
    spool.keep(1, *files)
    old = {path.stat().st_ino: path.stat().st_size for path in spool.folder(1).iterdir()}
    for path in (*files[:2], *files[2]):
        path.unlink()
        path.write_bytes(b"of round two")
    with (spool.folder(1) / MODEL).open("rb") as reader:
        spool.keep(2, *files)
        spares.turn()
        new = [tmp_path / f"new-{size}" for size in (20, 50)]
        assert all(spares.become(path, 30) for path in new)
        assert {path.stat().st_ino for path in new} == {inode for inode, size in old.items() if size != 80}
        # The model that is still open is not reused.
        assert not spares.become(tmp_path / "third", 80)
        assert reader.read() == b"m" * 80


def test_the_last_round_stays_whatever_its_size(tmp_path, files):
    spool = UpdateArchive(tmp_path / "spool", 1)
    for number in (1, 2):
        spool.keep(number, *files)
    assert [spool.folder(number).exists() for number in (1, 2)] == [False, True]


def test_without_a_budget_nothing_is_stored(tmp_path, files):
    UpdateArchive(tmp_path / "spool", 0).keep(1, *files)
    assert not (tmp_path / "spool").exists()
