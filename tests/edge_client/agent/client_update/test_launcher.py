"""The launcher as a process: which environment it starts, and when it goes back."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.client_update import launcher
from edge_client.agent.client_update.slots import ClientSlots

DEADLINE_S = 30.0
SAY = 'echo "$(basename "$(dirname "$(dirname "$0")")") $$ $*" >> "$EDGE_CLIENT_ROOT/log"\n'


def environment(root: Path, slot: str, *commands: str) -> None:
    """An environment whose client logs its start and runs these lines of shell."""
    program = root / slot / launcher.PROGRAM
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{SAY}{chr(10).join(commands)}\n")
    program.chmod(0o755)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """`a` in use, its client ends at once with code 0."""
    ClientSlots(tmp_path).make("a")
    environment(tmp_path, "a", "exit 0")
    return tmp_path


def on_trial(root: Path, *commands: str, **more: Any) -> None:
    """`b` is in use on trial, its client runs these lines."""
    environment(root, "b", *commands)
    limits = {"starts": 2, "silent_s": 20.0, "pause_s": 0.0}
    launcher.write_trial(root, {"to": "b", "former": "a", "rollout": "r", **limits, **more})
    launcher.point_current(root, "b")


def begin(root: Path, *words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([root / "launch", *words], start_new_session=True, stderr=subprocess.DEVNULL)


def launch(root: Path, *words: str) -> int:
    """Run the launcher to its end."""
    return begin(root, *words).wait(timeout=DEADLINE_S)


def starts(root: Path) -> list[str]:
    """The environments that were started."""
    return [line.split()[0] for line in (root / "log").read_text().splitlines()]


def until(found: Any) -> None:
    """Poll until something holds."""
    deadline = time.monotonic() + DEADLINE_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def back(root: Path) -> dict[str, str]:
    """Why the launcher has gone back."""
    trial = launcher.read_trial(root)
    assert trial is not None
    return dict(trial["back"])


def test_a_client_that_is_not_on_trial_takes_the_place_of_the_launcher(root: Path) -> None:
    process = begin(root, "run", "--config", "client.toml")
    assert process.wait(timeout=DEADLINE_S) == 0
    assert (root / "log").read_text() == f"a {process.pid} run --config client.toml\n"


def test_a_client_on_trial_that_dies_at_each_start_is_given_up(root: Path) -> None:
    on_trial(root, "exit 3")
    assert launch(root) == 0
    assert starts(root) == ["b", "b", "a"]
    assert back(root)["cause"] == "crashes"
    assert "it ended with 3" in back(root)["detail"]
    assert launcher.read_current(root) == "a"


def test_a_client_on_trial_that_dies_after_a_while_is_given_up(root: Path) -> None:
    on_trial(root, f"until [ -e {root}/die ]; do sleep 0.01; done", "kill -9 $$")
    process = begin(root)
    until(lambda: (root / "log").exists())
    assert process.poll() is None
    (root / "die").touch()
    assert process.wait(timeout=DEADLINE_S) == 0
    assert starts(root) == ["b", "b", "a"]
    assert "it ended with -9" in back(root)["detail"]


def test_a_client_on_trial_without_a_sign_of_life_is_killed_and_given_up(root: Path) -> None:
    on_trial(root, "exec sleep 60", silent_s=0.2)
    assert launch(root) == 0
    assert (starts(root), back(root)["cause"]) == (["b", "a"], "hangs")


def test_a_client_that_was_kept_ends_with_its_own_code(root: Path) -> None:
    on_trial(root, f"rm {root}/trial.json", "exit 4")
    assert launch(root) == 4
    assert (starts(root), launcher.read_current(root)) == (["b"], "b")


def test_a_client_that_asks_for_another_start_gets_it(root: Path) -> None:
    on_trial(root, f"rm {root}/trial.json; ln -sfn a {root}/current", f"exit {launcher.RESTART}")
    assert launch(root) == 0
    assert starts(root) == ["b", "a"]


def test_a_stop_by_the_user_is_passed_on_and_counts_as_no_failure(root: Path) -> None:
    on_trial(root, "trap 'exit 7' TERM", f"touch {root}/up", "while :; do sleep 0.01; done")
    process = begin(root)
    until(lambda: (root / "up").exists())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=DEADLINE_S) == 7
    trial = launcher.read_trial(root)
    assert trial is not None
    assert trial["started"] == 0


def test_a_power_cut_while_on_trial_counts_as_a_start(root: Path) -> None:
    on_trial(root, f"[ -e {root}/again ] || {{ touch {root}/up; exec sleep 60; }}", "exit 3")
    process = begin(root)
    until(lambda: (root / "up").exists())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    (root / "again").touch()
    assert launch(root) == 0
    assert starts(root) == ["b", "b", "a"]


def test_an_interrupted_return_is_finished_at_the_next_start(root: Path) -> None:
    on_trial(root, "exit 0", back={"cause": "no-connection", "detail": ""})
    assert launch(root) == 0
    assert (starts(root), launcher.read_current(root)) == (["a"], "a")


def test_a_trial_that_was_noted_but_not_begun_is_no_trial(root: Path) -> None:
    on_trial(root, "exit 0")
    launcher.point_current(root, "a")
    process = begin(root)
    assert process.wait(timeout=DEADLINE_S) == 0
    assert (root / "log").read_text().split()[:2] == ["a", str(process.pid)]


def test_a_damaged_environment_is_replaced_by_the_other_one(root: Path) -> None:
    environment(root, "b", "exit 0")
    (root / "a" / launcher.PROGRAM).unlink()
    assert launch(root) == 0
    assert starts(root) == ["b"]


def test_without_any_environment_the_remedy_is_named(root: Path) -> None:
    (root / "a" / launcher.PROGRAM).unlink()
    ended = subprocess.run([root / "launch"], capture_output=True, text=True, timeout=DEADLINE_S)
    assert ended.returncode == launcher.BAD_USAGE
    assert "run `edge-client install` again" in ended.stderr


@pytest.mark.parametrize("text", ["", "junk", "[]", json.dumps({"to": "b"})])
def test_a_note_that_is_not_whole_is_no_trial(root: Path, text: str) -> None:
    (root / "trial.json").write_text(text)
    assert launcher.read_trial(root) is None
