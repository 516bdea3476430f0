"""The audit log is only appended to; a changed or removed line shows, a torn last line is mended."""

from pathlib import Path

import pytest

from edge_server.storage import audit_log
from schemas.errors import EdgeError


def filled(tmp_path: Path, lines: int = 3) -> Path:
    path = tmp_path / "audit.jsonl"
    for number in range(lines):
        audit_log.append_entry(
            path, who="local:ada", what="label", target=f"pi-{number}", before={}, after={"site": "barn"}
        )
    return path


def test_entries_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = filled(tmp_path)
    entries = list(audit_log.read_entries(path))
    assert [entry.target for entry in entries] == ["pi-0", "pi-1", "pi-2"]
    assert entries[0].after == {"site": "barn"}
    assert audit_log.verify(path) is None
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("line", [0, 1])
def test_a_changed_line_shows(tmp_path: Path, line: int) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"local:ada", b"local:eve")
    path.write_bytes(b"".join(lines))
    damage = audit_log.verify(path)
    assert damage is not None
    assert damage.line == line + 2


def test_a_removed_line_shows(tmp_path: Path) -> None:
    path = filled(tmp_path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    damage = audit_log.verify(path)
    assert damage is not None
    assert damage.line == 2


@pytest.mark.parametrize("kept", [1, 20, 5000])
def test_a_torn_last_line_is_cut_off_by_the_next_entry(tmp_path: Path, kept: int) -> None:
    path = filled(tmp_path)
    audit_log.append_entry(path, who="local:ada", what="note", target="pi-9", after="n" * 9000)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1]) + whole[-1][:kept])
    assert [entry.target for entry in audit_log.read_entries(path)] == ["pi-0", "pi-1", "pi-2"]
    audit_log.append_entry(path, who="local:ada", what="note", target="pi-10")
    assert [entry.target for entry in audit_log.read_entries(path)][-1] == "pi-10"
    assert audit_log.verify(path) is None


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    path = filled(tmp_path)
    path.write_bytes(b"nonsense\n" + path.read_bytes())
    with pytest.raises(EdgeError, match="line 1"):
        list(audit_log.read_entries(path))
    damage = audit_log.verify(path)
    assert damage is not None
    assert damage.line == 1
