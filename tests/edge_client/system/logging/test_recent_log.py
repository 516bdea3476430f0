"""The newest lines of the log survive a crash and a full disk, in bounded room."""

import logging
from pathlib import Path

from edge_client.system.logging.setup import CURRENT, FOLDER, RecentLog, read_recent_log, recent_lines


def record(message: str, **facts: object) -> logging.LogRecord:
    made = logging.LogRecord("edge", logging.INFO, "file.py", 1, message, (), None)
    for name, value in facts.items():
        setattr(made, name, value)
    return made


def messages(lines: list[dict]) -> list[str]:
    return [line["message"] for line in lines]


def test_lines_are_there_for_the_next_process(tmp_path: Path) -> None:
    RecentLog(tmp_path).emit(record("first"))
    later = RecentLog(tmp_path)
    later.emit(record("second"))
    assert messages(later.lines()) == messages(read_recent_log(tmp_path)) == ["first", "second"]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    RecentLog(tmp_path).emit(record("whole"))
    with (tmp_path / FOLDER / CURRENT).open("a") as file:
        file.write('{"time": "2026-')
    assert messages(read_recent_log(tmp_path)) == ["whole"]


def test_the_files_are_bounded_and_keep_the_newest_lines(tmp_path: Path) -> None:
    log = RecentLog(tmp_path, most_bytes=2_000)
    for number in range(200):
        log.emit(record(f"line {number}"))
    sizes = [path.stat().st_size for path in (tmp_path / FOLDER).iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 2_000
    assert messages(read_recent_log(tmp_path))[-1] == "line 199"


def test_without_a_disk_the_lines_in_memory_remain(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    log = RecentLog(tmp_path)
    log.emit(record("in memory"))
    assert messages(log.lines()) == ["in memory"]


def test_a_flood_pushes_nothing_out(tmp_path: Path) -> None:
    log = RecentLog(tmp_path)
    log.emit(record("worth reading"))
    for _ in range(5_000):
        log.emit(record("ignored", reason="malformed"))
    assert messages(log.lines()) == ["worth reading", "ignored"]


def test_lines_of_this_process_are_found_by_its_folder(tmp_path: Path) -> None:
    log = RecentLog(tmp_path)
    logging.getLogger().addHandler(log)
    try:
        (tmp_path / FOLDER).write_text("no folder")
        logging.getLogger("edge").warning("here")
        assert "here" in messages(recent_lines(tmp_path))
        assert recent_lines(tmp_path / "another") == []
    finally:
        logging.getLogger().removeHandler(log)
