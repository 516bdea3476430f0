"""Damaged rows of the journal and lines of the history in a run that continues."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.config.config import Config
from edge_server.config.load import load_config
from edge_server.coordinator.replay import ReplayVerdict, replay
from edge_server.coordinator.round_rules import make_rules
from edge_server.coordinator.run_start import open_run, unfinished_run
from edge_server.rounds.participant import Status
from edge_server.storage.journal_reader import JournalReader
from edge_server.storage.recovery import Recovered
from schemas.errors import ConfigError
from tests.integration.bench import WORDS as BENCH_WORDS
from tests.integration.bench import Bench

WORDS = (*BENCH_WORDS, "rounds=3", "replay-mb=100")


@pytest.fixture
def interrupted(tmp_path: Path) -> tuple[Path, Config]:
    """A run with rounds one and two closed and both updates of round three accepted."""
    bench = Bench(tmp_path, "fedavg", "rounds=3", "replay-mb=100")
    for number in (1, 2):
        bench.round(number)
    bench.answers(3)
    (tmp_path / "run" / "signing.pub").touch()
    bench.coordinator.storage.close()
    return tmp_path / "run", load_config("fedavg", list(WORDS))


def resumed(run: Path, config: Config) -> Recovered:
    _, recovered = open_run(run, config, make_rules(config), now=0.0)
    assert recovered is not None
    return recovered


def execute(run: Path, statement: str) -> None:
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute(statement)


def test_an_accepted_update_with_a_damaged_row_is_requested_again(
    interrupted: tuple[Path, Config], caplog: pytest.LogCaptureFixture
) -> None:
    run, config = interrupted
    execute(run, "UPDATE updates SET message = substr(message, 9) WHERE attempt = 3 AND device = 'weak'")
    participants = resumed(run, config).federation.participants
    assert participants["weak"].status is Status.OFFERED
    assert participants["strong"].status is Status.COUNTED
    message = next(line for line in caplog.messages if "left out" in line)
    assert "journal.sqlite: table 'updates', row 3, weak" in message
    execute(run, "UPDATE updates SET message = '' WHERE attempt = 2 AND device = 'weak'")
    again = {result.round: result for result in replay(run)}
    assert (again[1].verdict, again[2].verdict) == (ReplayVerdict.AGREES, ReplayVerdict.DAMAGED)
    assert "update of weak cannot be read" in again[2].detail


@pytest.mark.parametrize("statement", ["UPDATE run SET run = 'another'", "DELETE FROM run", "DROP TABLE run"])
def test_a_run_with_a_damaged_name_continues_under_the_name_in_its_tasks(
    interrupted: tuple[Path, Config], statement: str
) -> None:
    run, config = interrupted
    execute(run, statement)
    assert resumed(run, config).federation.run == "run-1"


@pytest.mark.parametrize("table", ["rounds", "plannings"])
def test_a_missing_required_table_is_reported_with_file_and_remedy(
    interrupted: tuple[Path, Config], table: str
) -> None:
    run, config = interrupted
    execute(run, f"DROP TABLE {table}")
    with pytest.raises(ConfigError, match=rf"journal\.sqlite: no such table: {table}: put the file back"):
        resumed(run, config)


@pytest.mark.parametrize("part", ["half of it", "nothing", "without its log", "another program's"])
def test_a_journal_that_is_cut_off_or_foreign_is_no_other_version(tmp_path: Path, part: str) -> None:
    bench = Bench(tmp_path, "fedavg", "rounds=3")
    bench.round(1)
    journal = tmp_path / "run" / "journal.sqlite"
    if part == "half of it":
        bench.coordinator.storage.close()
        halved(journal)
    elif part == "nothing":
        bench.coordinator.storage.close()
        journal.write_bytes(b"")
    elif part == "without its log":
        # As a copy of the one file of a running server; the log has all that is new.
        alone = tmp_path / "copy" / "journal.sqlite"
        alone.parent.mkdir()
        alone.write_bytes(journal.read_bytes())
        bench.coordinator.storage.close()
        journal = alone
    else:
        journal = tmp_path / "other.sqlite"
        with closing(sqlite3.connect(journal)) as other, other:
            other.execute("CREATE TABLE rounds (x)")
    with pytest.raises(ConfigError, match="put the file back from a copy") as told:
        JournalReader(journal).rounds()
    assert "version" not in str(told.value)


def test_a_damaged_record_of_a_round_is_read_from_the_history(interrupted: tuple[Path, Config]) -> None:
    run, config = interrupted
    before = (run / "history.jsonl").read_text()
    execute(run, "UPDATE rounds SET record = 'x' WHERE round = 2")
    assert [record.round for record in resumed(run, config).history] == [1, 2]
    assert (run / "history.jsonl").read_text() == before
    (run / "history.jsonl").write_text("")
    with pytest.raises(ConfigError, match="row 2: the record cannot be read"):
        resumed(run, config)


def missing(path: Path) -> None:
    path.unlink()


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    path.write_bytes(b"\xff\x00" * 100)


@pytest.mark.parametrize("damage", [missing, halved, overwritten])
def test_a_missing_or_damaged_history_is_rewritten_from_the_journal(
    interrupted: tuple[Path, Config], damage: Callable[[Path], None]
) -> None:
    run, config = interrupted
    before = (run / "history.jsonl").read_bytes()
    damage(run / "history.jsonl")
    assert resumed(run, config).federation.round == 3
    assert (run / "history.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", [missing, halved, overwritten])
def test_a_history_that_is_damaged_during_the_run_is_rewritten(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    bench = Bench(tmp_path, "fedavg", "rounds=3")
    records = [bench.round(1)[0]]
    damage(bench.folder.history)
    records += [bench.round(2)[0], bench.round(3)[0]]
    expected = "".join(record.model_dump_json() + "\n" for record in records)
    assert bench.folder.history.read_text() == expected


def test_a_run_that_cannot_continue_is_named_before_another_begins(
    interrupted: tuple[Path, Config], caplog: pytest.LogCaptureFixture
) -> None:
    run, config = interrupted
    assert unfinished_run(run.parent, config) == run
    (run / "journal.sqlite").write_bytes(b"no database" * 1000)
    missing(run / "history.jsonl")
    for path in (run / "models").glob("round-*"):
        path.rename(run / path.name)
    assert unfinished_run(run.parent, config) is None
    assert any("cannot be resumed" in line and "journal.sqlite" in line for line in caplog.messages)
