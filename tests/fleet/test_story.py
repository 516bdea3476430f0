"""The story of a fleet, told by real processes at three sites."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edge_server.transport.broker.launch import find_mosquitto
from tests.fleet.boards import PROJECT
from tests.fleet.networks import OWN_NAMESPACES, can_have_sites

pytestmark = [
    pytest.mark.skipif(find_mosquitto() is None, reason="mosquitto is not installed"),
    pytest.mark.skipif(not can_have_sites(), reason="this machine lets nobody make network namespaces"),
    pytest.mark.timeout(1200),
]
WHOLE = pytest.mark.skipif(os.environ.get("WHOLE_STORY") != "1", reason="run by make test-fleet")


def tell(folder: Path, *words: str) -> list[str]:
    """Tell the story in namespaces of its own; returns its steps."""
    told = subprocess.run(
        [*OWN_NAMESPACES, sys.executable, "-m", "tests.fleet.story", str(folder), *words],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    return [line.partition(" s  ")[2] for line in told.stdout.splitlines()]


def test_the_life_of_a_small_fleet(tmp_path: Path) -> None:
    assert tell(tmp_path, "1", "--without-training")[-1] == "go on elsewhere"


@WHOLE
def test_the_life_of_twelve_boards(tmp_path: Path) -> None:
    steps = tell(tmp_path, "4")
    assert steps == [
        "enrol from a file",
        "come alive",
        "add a nightly job",
        "train",
        "replace a board",
        "update a client that goes back",
        "hear of a silent board",
        "refuse an operator to revoke",
        "back up while all runs",
        "go on elsewhere",
    ]
