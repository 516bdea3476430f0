"""The spool: rounds that are whole by themselves, the oldest of which go when there are too many bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_server.spool import BEFORE, Spool


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """A state of 100 bytes and an update of 50."""
    state, update = tmp_path / "state", tmp_path / ("a" * 64)
    state.write_bytes(b"s" * 100)
    update.write_bytes(b"u" * 50)
    return state, update


def test_a_round_is_kept_with_the_state_before_it(tmp_path, files):
    state, update = files
    spool = Spool(tmp_path / "spool", 1000)
    spool.keep(7, state, [update])
    state.unlink()
    update.unlink()
    folder = spool.folder(7)
    assert (folder / BEFORE).read_bytes() == b"s" * 100
    assert (folder / ("a" * 64)).read_bytes() == b"u" * 50


def test_keeping_a_round_twice_is_keeping_it_once(tmp_path, files):
    spool = Spool(tmp_path / "spool", 1000)
    for _ in range(2):
        spool.keep(1, files[0], [files[1]])
    assert sorted(path.name for path in spool.folder(1).iterdir()) == ["a" * 64, BEFORE]


def test_the_oldest_go_when_there_are_too_many_bytes(tmp_path, files):
    # 150 bytes a round: two are 300, a third would be 450.
    spool = Spool(tmp_path / "spool", 310)
    for number in (8, 9, 10):
        spool.keep(number, files[0], [files[1]])
    assert [spool.folder(number).exists() for number in (8, 9, 10)] == [False, True, True]


def test_whoever_takes_the_files_of_a_round_that_goes_gets_each_of_them(tmp_path, files):
    taken = []

    def take(path: Path) -> None:
        taken.append(path)
        path.unlink()

    spool = Spool(tmp_path / "spool", 1, remove=take)
    for number in (1, 2):
        spool.keep(number, files[0], [files[1]])
    assert sorted(taken) == [spool.folder(1) / name for name in ("a" * 64, BEFORE)]


def test_the_last_round_stays_whatever_it_takes(tmp_path, files):
    spool = Spool(tmp_path / "spool", 1)
    for number in (1, 2):
        spool.keep(number, files[0], [files[1]])
    assert [spool.folder(number).exists() for number in (1, 2)] == [False, True]


def test_without_a_budget_nothing_is_kept(tmp_path, files):
    Spool(tmp_path / "spool", 0).keep(1, files[0], [files[1]])
    assert not (tmp_path / "spool").exists()
