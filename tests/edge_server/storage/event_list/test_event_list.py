"""The event list: equal events share a row, floods are limited to few rows, and readers change nothing."""

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from edge_server.rounds.event_entry import AND_MORE, OTHERS, EventKind, RunEvent
from edge_server.rounds.events import Note
from edge_server.storage import event_list
from edge_server.storage import event_list as event_file
from schemas.errors import ConfigError, Reason

NOON = 1_700_000_040.0


def event(
    text: str = "lost", at: float = NOON, device: str = "pi", kind: EventKind = EventKind.LOSS
) -> RunEvent:
    return RunEvent(at, kind, text, text, device, last_at=at)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.sqlite"


def write(path: Path, *events: RunEvent) -> None:
    with closing(event_list.EventFile(path)) as file:
        file.add(events)


def gathered(*events: RunEvent) -> list[RunEvent]:
    buffer = event_list.EventBuffer()
    for entry in events:
        buffer.add(entry)
    return buffer.take()


def test_an_event_repeated_within_a_minute_is_one_row_with_a_count(path: Path) -> None:
    write(path, *gathered(event(), event(at=NOON + 5)))
    write(path, *gathered(event(at=NOON + 9), event(at=NOON + 60)))
    rows = [row.event for row in event_list.read_events(path)]
    assert [(row.at, row.last_at, row.count) for row in rows] == [
        (NOON, NOON + 9, 3),
        (NOON + 60, NOON + 60, 1),
    ]


def test_a_device_with_many_different_events_gets_few_rows(path: Path) -> None:
    rows = gathered(*(event(f"event {number}") for number in range(1000)))
    assert len(rows) == event_list.MAX_OF_A_DEVICE + 1
    assert (rows[-1].subject, rows[-1].count) == (AND_MORE, 1000 - event_list.MAX_OF_A_DEVICE)


def test_a_flood_of_invented_devices_gets_few_rows_and_does_not_affect_other_kinds() -> None:
    flood = [event(device=f"bot-{number}") for number in range(50_000)]
    rows = gathered(*flood, event("round 1 begun", device="", kind=EventKind.ROUND))
    assert len(rows) == event_list.MAX_OF_A_KIND + 2
    assert [row.count for row in rows if row.device == OTHERS] == [50_000 - event_list.MAX_OF_A_KIND]
    assert rows[-1].text == "round 1 begun"


def test_the_oldest_rows_of_a_kind_are_deleted_and_other_kinds_stay(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_file, "MAX_ROWS", 3)
    write(path, event("run begun", kind=EventKind.ROUND))
    for number in range(10):
        write(path, event(at=NOON + 60 * number))
    assert [row.event.at for row in event_list.read_events(path, kinds=["loss"])] == [
        NOON + 60 * n for n in (7, 8, 9)
    ]
    assert [row.event.text for row in event_list.read_events(path, kinds=["round"])] == ["run begun"]


def test_a_reader_gets_the_rows_added_or_changed_after_a_number(path: Path) -> None:
    write(path, event(), event("is back", kind=EventKind.JOIN))
    known = event_list.last_change(path)
    assert known == 2
    write(path, event(at=NOON + 1), event(device="nano"))
    fresh = event_list.read_events(path, after=known)
    assert [(row.event.device, row.event.count) for row in fresh] == [("pi", 2), ("nano", 1)]
    assert [row.event.device for row in event_list.read_events(path, device="nano")] == ["nano"]
    assert [row.event.kind for row in event_list.read_events(path, kinds=["join"])] == ["join"]


def test_a_missing_list_is_empty_and_a_damaged_list_is_an_error(path: Path) -> None:
    assert (event_list.read_events(path), event_list.last_change(path)) == ([], 0)
    path.write_bytes(b"no database at all" * 100)
    with pytest.raises(ConfigError, match="remove it to begin another"):
        event_list.read_events(path)


def test_a_killed_writers_open_transaction_is_ignored_and_reading_does_not_change_its_files(
    path: Path, tmp_path: Path
) -> None:
    write(path, *(event(at=NOON + 60 * number) for number in range(500)))
    folder = tmp_path / "killed"
    folder.mkdir()
    with closing(sqlite3.connect(path)) as writer:
        # Changed pages are written to the file before the commit, as in a large transaction.
        writer.execute("PRAGMA cache_size=1")
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE events SET text = 'half of it'")
        for source in (path, path.with_name("events.sqlite-journal")):
            shutil.copy(source, folder)
    copies = {copied: copied.read_bytes() for copied in folder.iterdir()}
    assert b"half of it" in copies[folder / "events.sqlite"]
    assert {row.event.text for row in event_list.read_events(folder / "events.sqlite")} == {"lost"}
    assert {copied: copied.read_bytes() for copied in folder.iterdir()} == copies


def test_closing_a_recorder_writes_all_events(path: Path) -> None:
    recorder = event_list.EventRecorder(path)
    for number in range(3000):
        recorder.record(event(at=NOON + number))
    recorder.close()
    assert sum(row.event.count for row in event_list.read_events(path)) == 3000


def test_a_list_that_cannot_be_written_is_logged_once_and_does_not_stop_the_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = event_list.EventRecorder(tmp_path / "missing" / "events.sqlite")
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            recorder.record(event())
            recorder.flush()
        recorder.close()
    assert [record.getMessage().count("cannot be kept") for record in caplog.records] == [1]


def test_notes_with_a_reason_are_refusals_with_one_row_per_reason() -> None:
    notes = [Note("update refused", "pi", reason, "why") for reason in (Reason.HARMFUL, Reason.REPLAYED) * 2]
    rows = gathered(*(note.event(NOON) for note in notes))
    assert [(row.kind, row.reason, row.text, row.count) for row in rows] == [
        (EventKind.REFUSAL, "harmful", "update refused: why", 2),
        (EventKind.REFUSAL, "replayed", "update refused: why", 2),
    ]
