"""A service that is killed at any moment finds its queue again: each job works exactly once."""

import json
import subprocess
from pathlib import Path

from tests.forked import forked_python

MOMENTS = (
    "writing 1",
    "written 1",
    "starting 1",
    "started 2",
    "writing 3",
    "written 4",
    "started 3",
    "written 5",
)
"""Within and after transactions, before and after the start of a process."""
DEADLINE_S = 120


def test_a_kill_at_any_moment_loses_and_repeats_nothing(tmp_path: Path) -> None:
    module = "tests.edge_server.fleet.queue.killed_service"
    done = subprocess.run(
        [*forked_python(), "-m", module, str(tmp_path)],
        input="\n".join(MOMENTS),
        stdout=subprocess.PIPE,
        text=True,
        timeout=DEADLINE_S,
        check=True,
    )
    found = dict(zip(MOMENTS, map(json.loads, done.stdout.splitlines()), strict=True))
    intact = {
        "runs": ["first done", "hourly done", "second done"],
        "worked": ["done\n"] * 3,
        "missed": 0,
        "folders": 3,
        "killed": True,
        "status": 0,
    }
    assert {moment: end for moment, end in found.items() if end != intact} == {}
