"""A run folder and its copy: after every entry the copy has what the folder had."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.coordinator.standby import takeover
from edge_server.coordinator.standby.following import Entry
from edge_server.coordinator.standby.replica_copy import RunCopy, is_copy, mark_as_copy, was_copy
from edge_server.coordinator.standby.replica_source import RunSource
from edge_server.rounds.events import Assignment
from edge_server.storage.journal import Journal
from schemas.errors import ConfigError, PeerError
from schemas.tensors.chunks import decode_json, digest_of
from tests.schemas.examples import MESSAGES_BY_KIND

UPDATE = MESSAGES_BY_KIND["update"]


class Pair:
    """A run folder, and a copy that takes entries when it is told to."""

    def __init__(self, folder: Path) -> None:
        self.run, self.other = folder / "run", folder / "copy"
        for name in ("models", "checkpoints", "blobs"):
            (self.run / name).mkdir(parents=True)
        (self.run / "federation.toml").write_text("[federation]\n")
        self.journal = Journal(self.run / "journal.sqlite")
        self.source = RunSource(self.run, self.journal)
        mark_as_copy(self.other, "home")
        self.copy = RunCopy(self.other)
        self.taken = 0

    def take(self) -> list[Entry]:
        """Bring the copy up to date; returns the entries."""
        entries = []
        for numbered in self.source.after(self.taken):
            assert numbered.number == self.taken + 1
            entry = decode_json(Entry, self.source.store.blob_path(numbered.ref.digest).read_bytes())
            for digest in entry.blobs:
                data = self.source.store.blob_path(digest).read_bytes()
                assert digest_of(data) == digest
                self.copy.store.blob_path(digest).write_bytes(data)
            self.copy.apply(entry)
            self.taken = numbered.number
            self.source.forget_taken(self.taken)
            entries.append(entry)
        return entries

    def files(self, folder: Path) -> dict[str, bytes]:
        names = ("blobs/*", "models/*/*", "checkpoints/*", "*.toml", "*.safetensors")
        paths = [path for pattern in names for path in folder.glob(pattern)]
        return {str(path.relative_to(folder)): path.read_bytes() for path in paths}

    def assert_same(self) -> None:
        assert self.files(self.run) == self.files(self.other)
        assert rows(self.run) == rows(self.other)


def rows(folder: Path) -> list[str]:
    with closing(sqlite3.connect(folder / "journal.sqlite")) as connection:
        return list(connection.iterdump())


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    yield pair
    pair.source.end()
    pair.journal.close()


def test_the_first_entry_is_the_whole_folder(pair: Pair) -> None:
    pair.journal.begun("run-1", "home")
    (pair.run / "blobs" / ("a" * 64)).write_bytes(b"an update")
    (pair.run / "signing.key").write_text("secret")
    (pair.run / "history.jsonl").write_text("{}")
    pair.source.begin()
    (first,) = pair.take()
    assert first.journal is not None
    pair.assert_same()
    assert not (pair.other / "signing.key").exists()


def test_each_transaction_comes_with_the_files_that_it_refers_to(pair: Pair) -> None:
    pair.source.begin()
    pair.take()
    (pair.run / "blobs" / UPDATE.blob.digest).write_bytes(b"bytes of an update")
    pair.journal.write_examined(UPDATE, reason=None, ratio=0.1 + 0.2, norms={"model": 1 / 3})
    (entry,) = pair.take()
    assert entry.files.keys() == {f"blobs/{UPDATE.blob.digest}"}
    pair.assert_same()


def test_a_file_that_a_power_cut_has_emptied_is_left_out_until_it_is_written_again(pair: Pair) -> None:
    emptied = pair.run / "other.toml"
    emptied.write_bytes(b"")
    pair.source.begin()
    (first,) = pair.take()
    assert emptied.name not in first.files
    emptied.write_bytes(b"[federation]")
    pair.journal.struck("pi", 1, "malformed")
    pair.take()
    pair.assert_same()


def test_files_of_later_rounds_replace_those_of_earlier_ones(pair: Pair) -> None:
    pair.source.begin()
    for number in range(1, 5):
        version = pair.run / "models" / f"round-{number:04d}"
        version.mkdir()
        (version / "state.safetensors").write_bytes(bytes([number]) * 2_000_000)
        (pair.run / "frames.safetensors").write_bytes(b"frames" * number)
        if number > 2:
            (pair.run / "models" / f"round-{number - 2:04d}" / "state.safetensors").unlink()
        pair.journal.struck("pi", number, "malformed")
    pair.take()
    pair.assert_same()


def test_an_entry_keeps_its_bytes_when_the_file_is_gone_before_it_is_taken(pair: Pair) -> None:
    pair.source.begin()
    state = pair.run / "frames.safetensors"
    state.write_bytes(b"old" * 500_000)
    pair.journal.write_agreed_lists(["cat"])
    write(pair.run / "next", b"new" * 500_000).replace(state)
    pair.journal.write_agreed_lists(["cat", "dog"])
    pair.take()
    pair.assert_same()


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def test_blobs_that_were_taken_are_removed(pair: Pair) -> None:
    pair.source.begin()
    pair.journal.write_agreed_lists(["cat"])
    assert pair.source.store.digests()
    pair.take()
    assert not pair.source.store.digests()
    assert pair.source.after(0) == []


def test_a_new_series_replaces_the_copy(pair: Pair) -> None:
    pair.source.begin()
    pair.take()
    (pair.other / "blobs" / ("f" * 64)).write_bytes(b"of an earlier run")
    pair.source.end()
    pair.source, pair.taken = RunSource(pair.run, pair.journal), 0
    pair.source.begin()
    pair.take()
    pair.assert_same()


@pytest.mark.parametrize(
    "name", ["../other", "/etc/passwd", "signing.key", "copied.json", "lock/../x", "a/b"]
)
def test_paths_outside_of_the_copy_are_refused(pair: Pair, name: str) -> None:
    ref = pair.copy.store.put_blob(b"data")
    with pytest.raises(PeerError):
        pair.copy.apply(Entry(files={name: ref}))


def test_a_closed_round_with_a_late_update_is_repeated(pair: Pair) -> None:
    pair.journal.begun("run-1", "home")
    pair.journal.write_planning(
        1, 1, {"a": Assignment(MESSAGES_BY_KIND["task"].model_copy(update={"attempt": 1}), 9)}
    )
    pair.journal.write_examined(UPDATE.model_copy(update={"attempt": 1, "device": "a"}), reason=None)
    pair.source.begin()
    pair.take()
    pair.journal.write_closed_round(1, "a" * 64, updates=(), over=("a",), record="{}", traffic={})
    pair.take()
    pair.assert_same()
    assert any("stale-round" in row for row in rows(pair.other))


def test_a_copy_is_marked_until_it_becomes_a_run(pair: Pair) -> None:
    assert is_copy(pair.other)
    pair.source.begin()
    pair.take()
    pair.copy.become_a_run()
    assert was_copy(pair.other)
    assert not is_copy(pair.other)
    with pytest.raises(ConfigError, match="holds a run of its own"):
        mark_as_copy(pair.other, "home")


@pytest.mark.parametrize(
    "statement",
    [
        "ATTACH DATABASE '/tmp/elsewhere' AS other",
        "DROP TABLE rounds",
        "CREATE TABLE more (x)",
        "PRAGMA writable_schema = 1",
        "DELETE FROM rounds WHERE randomblob(9) IS NULL",
        "nonsense",
    ],
)
def test_only_rows_are_changed(pair: Pair, statement: str) -> None:
    pair.source.begin()
    pair.take()
    with pytest.raises(PeerError):
        pair.copy.apply(Entry(changes=((statement, ((),)),)))


def test_a_standby_says_what_it_waits_for_and_why_it_is_not_connected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Enough(Exception):
        pass

    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 2:
            raise Enough

    monkeypatch.setattr(takeover, "preload", lambda: None)
    with pytest.raises(Enough):
        takeover.follow("home", parse_address("mqtt://127.0.0.1:1"), tmp_path / "copy", say=say)
    assert said[0] == "waits for a server of 'home' on mqtt://127.0.0.1:1"
    assert said[1].startswith("no connection to mqtt://127.0.0.1:1: the broker cannot be reached")
    with pytest.raises(ConfigError, match=r"RUN .*the folder cannot be made"):
        mark_as_copy(Path(__file__), "home")
