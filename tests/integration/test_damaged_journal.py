"""Rows of the journal, and lines of the history, that are damaged in a run that goes on."""

from __future__ import annotations

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
from edge_server.storage.recovery import Recovered
from schemas.errors import ConfigError
from tests.integration.bench import Bench

WORDS = ("data.source=digits", "rounds=3", "batch-size=8", "strategy.uplink=[]", "replay-mb=100")


@pytest.fixture
def cut_off(tmp_path: Path) -> tuple[Path, Config]:
    """Rounds one and two are closed; both updates of round three are accepted."""
    bench = Bench(tmp_path, "fedavg", "rounds=3", "replay-mb=100")
    for number in (1, 2):
        bench.round(number)
    bench.answers(3)
    (tmp_path / "run" / "signing.pub").touch()
    bench.coordinator.suspend()
    return tmp_path / "run", load_config("fedavg", list(WORDS))


def gone_on(run: Path, config: Config) -> Recovered:
    _, recovered = open_run(run, config, make_rules(config), now=0.0)
    assert recovered is not None
    return recovered


def change(run: Path, asked: str) -> None:
    with closing(sqlite3.connect(run / "journal.sqlite")) as journal, journal:
        journal.execute(asked)


def test_an_accepted_update_whose_row_is_damaged_is_asked_for_again(
    cut_off: tuple[Path, Config], caplog: pytest.LogCaptureFixture
) -> None:
    run, config = cut_off
    change(run, "UPDATE updates SET message = substr(message, 9) WHERE attempt = 3 AND device = 'weak'")
    participants = gone_on(run, config).federation.participants
    assert participants["weak"].status is Status.OFFERED
    assert participants["strong"].status is Status.COUNTED
    said = next(line for line in caplog.messages if "left out" in line)
    assert "journal.sqlite: table 'updates', row 3, weak" in said
    change(run, "UPDATE updates SET message = '' WHERE attempt = 2 AND device = 'weak'")
    again = {one.round: one for one in replay(run)}
    assert (again[1].verdict, again[2].verdict) == (ReplayVerdict.AGREES, ReplayVerdict.DAMAGED)
    assert "update of weak cannot be read" in again[2].detail


@pytest.mark.parametrize("asked", ["UPDATE run SET run = 'another'", "DELETE FROM run", "DROP TABLE run"])
def test_a_run_whose_name_is_changed_goes_on_under_the_name_that_its_tasks_have(
    cut_off: tuple[Path, Config], asked: str
) -> None:
    run, config = cut_off
    change(run, asked)
    assert gone_on(run, config).federation.run == "run-1"


@pytest.mark.parametrize("table", ["rounds", "plannings"])
def test_without_what_it_cannot_do_without_it_says_which_file_and_what_to_do(
    cut_off: tuple[Path, Config], table: str
) -> None:
    run, config = cut_off
    change(run, f"DROP TABLE {table}")
    with pytest.raises(ConfigError, match=rf"journal\.sqlite: no such table: {table}: put the file back"):
        gone_on(run, config)


def test_a_rounds_record_that_is_damaged_is_that_of_the_history(cut_off: tuple[Path, Config]) -> None:
    run, config = cut_off
    before = (run / "history.jsonl").read_text()
    change(run, "UPDATE rounds SET record = 'x' WHERE round = 2")
    assert [record.round for record in gone_on(run, config).history] == [1, 2]
    assert (run / "history.jsonl").read_text() == before
    (run / "history.jsonl").write_text("")
    with pytest.raises(ConfigError, match="row 2: the record cannot be read"):
        gone_on(run, config)


def gone(path: Path) -> None:
    path.unlink()


def halved(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def overwritten(path: Path) -> None:
    path.write_bytes(b"\xff\x00" * 100)


@pytest.mark.parametrize("damage", [gone, halved, overwritten])
def test_a_history_that_is_gone_or_damaged_is_written_again_from_the_journal(
    cut_off: tuple[Path, Config], damage: Callable[[Path], None]
) -> None:
    run, config = cut_off
    before = (run / "history.jsonl").read_bytes()
    damage(run / "history.jsonl")
    assert gone_on(run, config).federation.round == 3
    assert (run / "history.jsonl").read_bytes() == before


@pytest.mark.parametrize("damage", [gone, halved, overwritten])
def test_so_is_one_that_is_damaged_while_the_server_is_at_work(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    bench = Bench(tmp_path, "fedavg", "rounds=3")
    records = [bench.round(1)[0]]
    damage(bench.folder.history)
    records += [bench.round(2)[0], bench.round(3)[0]]
    said = "".join(record.model_dump_json() + "\n" for record in records)
    assert bench.folder.history.read_text() == said


def test_a_run_that_cannot_be_gone_on_with_is_named_before_another_one_begins(
    cut_off: tuple[Path, Config], caplog: pytest.LogCaptureFixture
) -> None:
    run, config = cut_off
    assert unfinished_run(run.parent, config) == run
    (run / "journal.sqlite").write_bytes(b"no database" * 1000)
    gone(run / "history.jsonl")
    for path in (run / "models").glob("round-*"):
        path.rename(run / path.name)
    assert unfinished_run(run.parent, config) is None
    assert any("is not gone on with" in line and "journal.sqlite" in line for line in caplog.messages)
