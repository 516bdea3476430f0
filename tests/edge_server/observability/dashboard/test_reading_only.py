"""Reading a run changes nothing in its folder and needs no write permission."""

import os
import shutil
import tempfile
from contextlib import closing
from pathlib import Path

from starlette.testclient import TestClient

from edge_server.observability.dashboard.access import access_of
from edge_server.observability.dashboard.app import make_app
from edge_server.observability.dashboard.feed import Feed
from edge_server.observability.dashboard.run_reader import open_journal, read_facts
from edge_server.storage.journal import Journal
from tests.edge_server.observability.dashboard.folders import begun, close, ended

NOBODY = 65534
LOCAL = access_of("localhost", 80, None, bound="127.0.0.1")


def state_of(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The modification time and the bytes of every file."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path): (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def request_everything(folder: Path) -> int:
    """Request every page and return the number of rounds in the stream."""
    feed = Feed(folder, live=False)
    feed.closing = True
    with TestClient(make_app(feed, LOCAL), base_url="http://localhost") as client:
        for path in (
            "/",
            "/api/run",
            "/api/fleet",
            "/api/device/alpha",
            "/api/model",
            "/api/channel/hidden/1",
        ):
            assert client.get(path).status_code == 200
        return client.get("/api/stream").text.count("event: round")


def killed(folder: Path) -> Path:
    """A copy of a run in progress, as a killed server leaves it."""
    made, journal = begun(folder / "alive")
    shutil.copytree(made.path, folder / "killed", ignore=shutil.ignore_patterns("*-shm"))
    journal.close()
    (folder / "killed" / "lock").touch()
    return folder / "killed"


def test_the_folder_of_a_finished_run_is_not_changed(tmp_path):
    folder = ended(tmp_path / "run").path
    before = state_of(folder)
    assert request_everything(folder) == 2
    assert state_of(folder) == before


def test_the_folder_of_a_killed_run_is_not_changed_and_its_last_records_are_read(tmp_path):
    folder = killed(tmp_path)
    assert (folder / "journal.sqlite-wal").stat().st_size > 0
    before = state_of(folder)
    assert request_everything(folder) == 2
    assert state_of(folder) == before
    # The last records of the journal are still in its write-ahead log.
    assert set(read_facts(folder).known) == {"alpha", "beta"}


def test_a_read_only_folder_is_enough():
    """The folder is read as another user, because root may write everywhere."""
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        runs = [ended(top / "ended").path, killed(top)]
        for path in (top, *top.rglob("*")):
            path.chmod(0o555 if path.is_dir() else 0o444)
        try:
            assert [_rounds_seen_by_nobody(run) for run in runs] == [2, 2]
        finally:
            for path in (top, *(path for path in top.rglob("*") if path.is_dir())):
                path.chmod(0o755)


def test_the_journal_of_a_running_run_is_read_while_it_is_written(tmp_path):
    folder, journal = begun(tmp_path / "run")
    with closing(journal), open_journal(folder.journal, live=True) as reader:
        close(folder, journal, 3)
        assert [row.round for row in reader.rounds()] == [1, 2, 3]
        assert isinstance(journal, Journal)


def test_the_progress_of_a_run_in_another_process_is_shown(tmp_path):
    folder, journal = begun(tmp_path / "run")
    feed = Feed(folder.path, live=False)
    with closing(journal), TestClient(make_app(feed, LOCAL), base_url="http://localhost") as client:
        assert [line["round"] for line in client.get("/api/run").json()["history"]] == [1, 2]
        close(folder, journal, 3)
        feed.closing = True  # the next request reads the current state
        assert [line["round"] for line in client.get("/api/run").json()["history"]] == [1, 2, 3]


def test_a_broken_file_does_not_discard_what_was_read_before(tmp_path):
    folder, journal = begun(tmp_path / "run")
    journal.close()
    feed = Feed(folder.path, live=False)
    with TestClient(make_app(feed, LOCAL), base_url="http://localhost") as client:
        assert len(client.get("/api/run").json()["history"]) == 2
        (folder.path / "summary.json").write_text("{")
        feed.closing = True
        answer = client.get("/api/run")
        assert (answer.status_code, len(answer.json()["history"])) == (200, 2)


def _rounds_seen_by_nobody(run: Path) -> int:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seen = 255
        try:
            if os.getuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            facts = read_facts(run)
            seen = len(facts.history) if set(facts.known) == {"alpha", "beta"} else 254
        finally:
            os.write(writing, bytes([seen]))
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        (seen,) = file.read(1)
    os.waitpid(child, 0)
    return int(seen)
