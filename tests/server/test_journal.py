"""The journal: what it says is on disk, and what it is told twice it says once."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.journal import Journal

ROOT = Path(__file__).parents[2]
ONE, TWO = "1" * 64, "2" * 64


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.sqlite"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    journal = Journal(path)
    yield journal
    journal.close()


def rows(path: Path, query: str) -> list[tuple]:
    """What another program reads while the journal is open."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def accept(journal: Journal, device: str = "a", digest: str = ONE, number: int = 1, **more) -> None:
    journal.examined(number, device, digest, **{"size": 7, "examples": 3, "reason": None, **more})


def test_a_round_that_is_planned_again_is_another_attempt(journal, path):
    journal.planned(1, ["b", "a"])
    journal.planned(1, {"a": "any mapping will do"})
    journal.planned(2, [])
    found = rows(path, "SELECT round, attempt, selected, closed_at, state_sha256 FROM rounds ORDER BY 1, 2")
    assert [(number, attempt, json.loads(selected)) for number, attempt, selected, *_ in found] == [
        (1, 1, ["a", "b"]),
        (1, 2, ["a"]),
        (2, 1, []),
    ]
    assert all(one[3:] == (None, None) for one in found)


def test_a_closed_round_names_its_model_at_its_last_attempt(journal, path):
    journal.planned(1, ["a"])
    journal.planned(1, ["a"])
    journal.planned(2, ["a"])
    before = time.time()
    journal.closed(1, ONE)
    found = rows(path, "SELECT round, attempt, state_sha256, closed_at FROM rounds ORDER BY 1, 2")
    assert [one[:3] for one in found] == [(1, 1, None), (1, 2, ONE), (2, 1, None)]
    assert before <= found[1][3] <= time.time()


def test_accepted_and_refused_updates_are_told_apart(journal, path):
    accept(journal)
    accept(journal, "b", TWO, reason="not-finite")
    found = rows(path, "SELECT round, device, digest, bytes, examples, reason FROM updates ORDER BY device")
    assert found == [(1, "a", ONE, 7, 3, None), (1, "b", TWO, 7, 3, "not-finite")]


def test_an_update_told_twice_counts_once_and_the_last_word_holds(journal, path):
    for reason in ("digest-mismatch", None, None):
        accept(journal, reason=reason)
    assert rows(path, "SELECT device, reason FROM updates") == [("a", None)]


@pytest.mark.parametrize("other", [{"device": "b"}, {"digest": TWO}, {"number": 2}])
def test_another_device_digest_or_round_is_another_update(journal, path, other):
    accept(journal)
    accept(journal, **other)
    assert rows(path, "SELECT count(*) FROM updates") == [(2,)]


def test_it_goes_on_where_an_earlier_one_ended(path):
    for _ in range(2):
        journal = Journal(path)
        journal.planned(1, ["a"])
        journal.close()
    assert rows(path, "SELECT attempt FROM rounds ORDER BY 1") == [(1,), (2,)]


def test_it_is_written_ahead_and_synced(journal, path):
    assert rows(path, "PRAGMA journal_mode") == [("wal",)]
    # 2 is FULL: each commit is synced, so what was confirmed survives a power cut.
    assert journal._connection.execute("PRAGMA synchronous").fetchone() == (2,)


def test_it_may_be_used_by_another_thread_than_its_maker(journal, path):
    thread = threading.Thread(target=accept, args=(journal,))
    thread.start()
    thread.join()
    assert rows(path, "SELECT count(*) FROM updates") == [(1,)]


@pytest.mark.parametrize("durable", [True, False])
def test_what_was_said_survives_the_death_of_the_process(path, durable):
    program = (
        "import os, sys; from pathlib import Path; from edge_server.journal import Journal;"
        "journal = Journal(Path(sys.argv[1]), durable=sys.argv[2] == 'True');"
        "journal.planned(1, ['a']);"
        "journal.examined(1, 'a', '1' * 64, size=7, examples=3, reason=None); os.kill(os.getpid(), 9)"
    )
    died = subprocess.run([sys.executable, "-c", program, str(path), str(durable)], cwd=ROOT)
    assert died.returncode == -9
    journal = Journal(path)
    journal.closed(1, ONE)
    journal.close()
    assert rows(path, "SELECT round, attempt, state_sha256 FROM rounds") == [(1, 1, ONE)]
    assert rows(path, "SELECT device, digest FROM updates") == [("a", ONE)]
