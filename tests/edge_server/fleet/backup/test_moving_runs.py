"""A run that goes on while it is saved: the saved files are those that the saved journal names."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.fleet.backup import collecting
from edge_server.fleet.backup.archive import ArchiveWriter
from edge_server.fleet.backup.steady_files import PINS, Pins
from edge_server.storage.journal import Journal
from edge_server.storage.journal_reader import JournalReader
from schemas.errors import ConfigError
from tests.edge_server.fleet.backup.small_service import SmallService, made, tree, write
from tests.edge_server.rounds.by_hand import assignment


class MovingRun:
    """Closes a round whenever the first of the run's files is pinned, up to a number of rounds."""

    def __init__(self, run: Path, rounds: int) -> None:
        self._run, self._left, self._number = run, rounds, 2
        self._pin = Pins.pin

    def pin(self, pins: Pins, path: Path) -> Path:
        pinned = self._pin(pins, path)
        if self._left and pins.count == 1:
            self._left -= 1
            self._close_round()
        return pinned

    def _close_round(self) -> None:
        number, run = self._number, self._run
        write(made(run / "models" / f"round-{number:04d}") / "state.safetensors", b"m%d" % number)
        write(run / "checkpoints" / f"round-{number:07d}.safetensors", b"s%d" % number)
        with closing(Journal(run / "journal.sqlite")) as journal:
            journal.write_closed_round(number, "0" * 64, updates=(), over=("pi",), record="{}", traffic={})
            journal.write_planning(
                number + 1, number + 1, {"pi": assignment(number + 1, number + 1)}, needed=1
            )
        for old in sorted((run / "checkpoints").iterdir())[:-2]:
            old.unlink()
        self._number += 1


def test_a_run_whose_rounds_close_meanwhile_is_saved_again(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    moving = MovingRun(service.run, rounds=3)
    monkeypatch.setattr(Pins, "pin", lambda pins, path: moving.pin(pins, path))
    service.backup("a.backup")
    run = service.restore("a.backup") / "runs" / "home"
    with closing(JournalReader(run / "journal.sqlite")) as reader:
        last = reader.rounds()[-1].round
    assert last == 4
    assert (run / "checkpoints" / "round-0000004.safetensors").read_bytes() == b"s4"
    assert (run / "models" / "round-0004" / "state.safetensors").read_bytes() == b"m4"


def test_a_run_that_is_always_faster_is_refused_and_nothing_is_left(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collecting, "TRIES", 3)
    moving = MovingRun(service.run, rounds=10**6)
    monkeypatch.setattr(Pins, "pin", lambda pins, path: moving.pin(pins, path))
    with pytest.raises(ConfigError, match="rounds follow each other faster than they can be saved"):
        service.backup("a.backup")
    assert not (service.base / "a.backup").exists()
    assert not list(service.base.glob(".*"))
    assert not list(service.run.glob(".backup-*"))


def test_bytes_that_are_written_over_in_place_are_not_saved(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a server does that recycles a file between our look at it and our second name."""
    blob, copied = service.run / "blobs" / ("a" * 64), ArchiveWriter.copy_file
    done: list[Path] = []

    def overwritten(writer: ArchiveWriter, file, digest: str, suffix: str) -> str:
        if not done and os.fstat(file.fileno()).st_ino == blob.stat().st_ino:
            done.append(blob)
            blob.write_bytes(b"another's bytes")
        return copied(writer, file, digest, suffix)

    monkeypatch.setattr(ArchiveWriter, "copy_file", overwritten)
    service.backup("a.backup")
    assert done
    new = tree(service.restore("a.backup"))
    assert new[f"runs/home/blobs/{'a' * 64}"] == b"another's bytes"


def test_files_stay_while_the_server_deletes_them(
    service: SmallService, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ArchiveWriter.store_file

    def deleted(writer: ArchiveWriter, path: Path) -> tuple[str, int]:
        if path.parent.name.startswith(PINS):
            (service.run / "blobs" / ("a" * 64)).unlink(missing_ok=True)
        return store(writer, path)

    monkeypatch.setattr(ArchiveWriter, "store_file", deleted)
    service.backup("a.backup")
    assert tree(service.restore("a.backup"))[f"runs/home/blobs/{'a' * 64}"] == b"an update"
