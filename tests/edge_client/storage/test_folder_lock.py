"""Two clients on one state folder: the second is refused, and the first was not killed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_client.cli.main import main
from edge_client.storage.atomic_files import lock_folder
from edge_client.system.crash_record import record_crashes
from schemas.errors import ConfigError

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
