"""The journal: entries are on disk, and repeated entries are stored once."""

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.rounds.events import Assignment
from edge_server.rounds.fleet import Device
from edge_server.storage.journal import AggregatedUpdate, Journal
from edge_server.storage.journal_reader import ClosedRound, JournalReader, Strike
from schemas.errors import ConfigError
from schemas.messages import Update, decode_task
from schemas.values import CapabilityProfile, DataCard
from tests.schemas.examples import MESSAGES_BY_KIND
from tests.unsynced import CONNECT

ROOT = Path(__file__).parents[3]
ONE, TWO = "1" * 64, "2" * 64
TASK = MESSAGES_BY_KIND["task"]
UPDATE = MESSAGES_BY_KIND["update"]
CARD = DataCard(source="digits", examples=24, input_shape=(1, 8, 8), num_classes=10)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path)
    yield journal
    journal.close()


@pytest.fixture
def reader(journal: Journal, path: Path) -> Iterator[JournalReader]:
    with closing(JournalReader(path)) as reader:
        yield reader


def update(device: str = "a", digest: str = ONE, **more) -> Update:
    blob = UPDATE.blob.model_copy(update={"digest": digest})
    return UPDATE.model_copy(update={"device": device, "blob": blob, **more})


def assignments(*devices: str, attempt: int = 1) -> dict[str, Assignment]:
    return {name: Assignment(TASK.model_copy(update={"attempt": attempt}), 900) for name in devices}


def close(journal: Journal, number: int = 1, over: tuple[str, ...] = ("a",)) -> None:
    made_of = [AggregatedUpdate("a", 1, ONE, 0)]
    journal.write_closed_round(
        number, TWO, updates=made_of, over=over, record="{}", traffic={"uplink": {"a": 5}}
    )


def test_a_planning_is_read_as_it_was_written(journal, reader):
    device = Device("a", 7, CapabilityProfile(tier=2), CARD)
    journal.write_planning(
        1, 3, assignments("b", "a"), devices=[device], clients={"a": (2, 24)}, needed=1, rng=(0, 3, 0)
    )
    (planned,) = reader.plannings()
    assert (planned.attempt, planned.round, planned.deliver, planned.needed) == (1, 3, False, 1)
    assert (planned.selected, planned.clients, planned.rng) == (("a", "b"), {"a": (2, 24)}, (0, 3, 0))
    name, session, profile, data = reader.devices()[0]
    assert (name, session) == ("a", 7)
    assert CapabilityProfile.model_validate_json(profile).tier == 2
    assert DataCard.model_validate_json(data) == CARD


def test_each_device_has_its_newest_task(journal, reader):
    journal.write_planning(1, 1, assignments("a", "b"))
    journal.write_planning(2, 1, assignments("b", attempt=2))
    tasks = reader.tasks()
    assert [(device, attempt, most) for device, attempt, _, most in tasks] == [("a", 1, 900), ("b", 2, 900)]
    assert decode_task(tasks[1][2]).attempt == 2


def test_the_tasks_of_a_closed_round_are_over(journal, reader):
    journal.write_planning(1, 1, assignments("a", "b"))
    close(journal, over=("a",))
    assert [task[0] for task in reader.tasks()] == ["b"]


def test_a_closed_round_lists_its_updates(journal, reader):
    close(journal)
    close(journal)
    assert reader.rounds() == [
        ClosedRound(1, TWO, (AggregatedUpdate("a", 1, ONE, 0),), "{}", {"uplink": {"a": 5}})
    ]


def test_a_closed_round_is_untested_until_its_whole_record_is_written(journal, reader):
    made_of = [AggregatedUpdate("a", 1, ONE, 0)]
    for number in (1, 2):
        journal.write_closed_round(
            number, TWO, updates=made_of, over=(), record="{}", traffic={}, tested=number == 1
        )
    assert [closed.tested for closed in reader.rounds()] == [True, False]
    journal.write_test(2, '{"round": 2}')
    assert [(closed.tested, closed.record) for closed in reader.rounds()] == [
        (True, "{}"),
        (True, '{"round": 2}'),
    ]


def test_accepted_and_refused_updates_are_distinguished(journal, reader):
    journal.write_examined(update(), reason=None, ratio=0.5)
    journal.write_examined(update("b", TWO), reason="not-finite")
    assert reader.updates() == [(update(), None, 0.5), (update("b", TWO), "not-finite", None)]


def test_an_accepted_update_that_a_closed_round_did_not_wait_for_is_late(journal, reader):
    journal.write_planning(1, 1, assignments("a", "b"))
    for device, digest in (("a", ONE), ("b", TWO)):
        journal.write_examined(update(device, digest, attempt=1), reason=None, norms={"model": 0.25})
    close(journal, over=("a", "b"))
    assert [reason for _, reason, _ in reader.updates()] == [None, "stale-round"]
    assert reader.last_accepted().keys() == {"a"}
    # The firewall has found nothing in either of them.
    assert [seen.reason for seen in reader.examined_updates()] == [None, None]


def test_norms_and_strikes_are_read_as_they_were_written(journal, reader):
    journal.write_examined(update(), reason=None, norms={"model": 0.25})
    journal.struck("b", 3, "not-finite")
    assert reader.examined_updates()[0].norms == {"model": 0.25}
    assert reader.strikes() == [Strike("b", 3, "not-finite")]


def test_an_update_recorded_repeatedly_is_stored_once_with_its_last_result(journal, reader):
    for reason in ("digest-mismatch", None, None):
        journal.write_examined(update(), reason=reason)
    assert reader.updates() == [(update(), None, None)]


@pytest.mark.parametrize("other", [{"device": "b"}, {"digest": TWO}, {"attempt": 9}])
def test_another_device_digest_or_attempt_is_another_update(journal, reader, other):
    journal.write_examined(update(), reason=None)
    journal.write_examined(update(**other), reason=None)
    assert len(reader.updates()) == 2


def test_a_simulations_journal_stores_no_tasks(tmp_path):
    with closing(Journal(tmp_path / "simulated", durable=False)) as journal:
        journal.write_planning(1, 1, assignments("a"))
    with closing(JournalReader(tmp_path / "simulated")) as reader:
        assert reader.plannings()[0].selected == ("a",)
        assert reader.tasks() == []


def test_a_reopened_journal_continues_after_its_last_entry(path):
    for attempt in (1, 2):
        with closing(Journal(path)) as journal:
            journal.write_planning(attempt, 1, assignments("a"))
    with closing(JournalReader(path)) as reader:
        assert [planned.attempt for planned in reader.plannings()] == [1, 2]


def test_the_journal_is_written_ahead_and_synced(path, monkeypatch):
    monkeypatch.setattr(sqlite3, "connect", CONNECT)
    with closing(Journal(path)) as journal:
        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        # 2 is FULL: each commit is synced, so committed entries survive a power cut.
        assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_the_journal_may_be_used_by_several_threads(journal, reader):
    def examine(device: str) -> None:
        for attempt in range(1, 21):
            journal.write_examined(update(device, attempt=attempt), reason=None)

    threads = [threading.Thread(target=examine, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reader.updates()) == 60


@pytest.mark.parametrize("durable", [True, False])
def test_written_entries_survive_the_death_of_the_process(path, durable):
    program = (
        "import os, sys; from pathlib import Path; from edge_server.storage.journal import Journal;"
        "journal = Journal(Path(sys.argv[1]), durable=sys.argv[2] == 'True');"
        "journal.begun('run-1', 'home'); os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(path), str(durable)], cwd=ROOT)
    assert died.returncode == -9
    with closing(JournalReader(path)) as reader:
        assert reader.run() == "run-1"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "there is no journal"),
        (b"words, no database" * 99, "no journal"),
        (b"", "cut off, without its journal.sqlite-wal"),
    ],
)
def test_an_invalid_journal_is_refused(path, content, message):
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=message):
        JournalReader(path)


@pytest.mark.parametrize("number", [1, 3])
def test_a_journal_of_another_format_is_refused_and_stays_as_it_is(path: Path, number: int) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.executescript(f"CREATE TABLE later (x); PRAGMA user_version={number}")
    before = path.read_bytes()
    for opened in (Journal, JournalReader):
        with pytest.raises(ConfigError, match=rf"a journal of format {number}; .* that began the run"):
            opened(path)
    assert path.read_bytes() == before


def test_a_closed_journal_is_one_file_even_after_reads(path: Path) -> None:
    journal = Journal(path)
    journal.begun("run-1", "home")
    reader = JournalReader(path)
    assert reader.run() == "run-1"
    reader.close()
    journal.close()
    with closing(JournalReader(path)) as again:
        assert again.run() == "run-1"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
