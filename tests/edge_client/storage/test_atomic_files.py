"""Files that are replaced at once, and folders that one process holds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.cli.main import main
from edge_client.storage import atomic_files
from edge_client.storage.atomic_files import lock_folder, sweep, write_synced
from edge_client.system.crash_record import record_crashes
from schemas.errors import ConfigError


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    write_synced(tmp_path / "model.onnx", b"old")
    monkeypatch.setattr(atomic_files.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_synced(tmp_path / "model.onnx", b"new")
    assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("model.onnx", b"old")]


def test_only_temporary_files_of_killed_writes_are_swept(tmp_path: Path) -> None:
    left = ["", "blobs", "models", "models/waiting", "epochs", "private/run-1", "serving", "serving/a"]
    mine = ["notes.part", ".hidden.part", "blobs/0123.part", "elsewhere/.model.onnx.12.part"]
    for name in mine + [f"{folder}/.model.onnx.{4711}.part".lstrip("/") for folder in left]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    sweep(tmp_path)
    remaining = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert remaining == sorted(mine)


HOLD = """
import sys
from pathlib import Path
from edge_client.storage.atomic_files import lock_folder
from edge_client.system.crash_record import record_crashes
lock_folder(Path(sys.argv[1]), option="--state-dir")
record_crashes(Path(sys.argv[1]))
print("locked", flush=True)
sys.stdin.read()
"""


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path: Path, capsys) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        with pytest.raises(ConfigError, match=f"process {first.pid}, uses this folder"):
            lock_folder(tmp_path, option="--state-dir")
        assert main(["run", "--state-dir", str(tmp_path), "--data", "digits"]) == 2
        said = capsys.readouterr().err
        assert "uses this folder" in said
        assert "ended unexpectedly" not in said
        first.stdin.close()
        assert first.wait(30) == 0
    lock_folder(tmp_path, option="--state-dir")
    assert record_crashes(tmp_path) is None
    assert (tmp_path / "lock").read_text() == str(os.getpid())
