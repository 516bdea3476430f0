"""The processes of jobs: exit codes, signals, the log, and processes of an earlier service."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from edge_server.fleet.queue import supervisor
from edge_server.fleet.queue.jobs_part import JobProcesses, Outcome

DEADLINE_S = 30
CATCH = "trap 'echo {name}; exit {code}' {name}; echo ready; while :; do read line < pipe; done"


def outcome(processes: JobProcesses, run: str, attempt: int = 1) -> Outcome:
    until = time.monotonic() + DEADLINE_S
    while (ended := processes.outcome(run, attempt)) is None:
        assert time.monotonic() < until, "the process has not ended"
        os.sched_yield()
    return ended


def ready(log: Path) -> None:
    until = time.monotonic() + DEADLINE_S
    while "ready" not in log.read_text().splitlines():
        assert time.monotonic() < until, "the command has not begun"
        os.sched_yield()


def start(runs: Path, script: str, *, run: str = "a", attempt: int = 1) -> JobProcesses:
    processes = JobProcesses(runs)
    (runs / run).mkdir(exist_ok=True)
    if not (runs / run / "pipe").exists():
        os.mkfifo(runs / run / "pipe")
    processes.start(run, attempt, ["sh", "-c", script], str(runs / run))
    return processes


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9)])
def test_the_exit_code_of_a_command(tmp_path: Path, script: str, code: int) -> None:
    processes = start(tmp_path, f"echo out; echo err >&2; {script}")
    assert outcome(processes, "a") == Outcome(code)
    first, *lines = (tmp_path / "a/job.log").read_text().splitlines()
    assert first.startswith("--- attempt 1, ")
    assert lines == ["out", "err"]
    assert outcome(JobProcesses(tmp_path), "a") == Outcome(code)
    assert outcome(JobProcesses(tmp_path), "a", attempt=2) == Outcome(None)


def test_a_command_that_does_not_exist(tmp_path: Path) -> None:
    processes = JobProcesses(tmp_path)
    processes.start("a", 1, ["/nowhere/edge"], str(tmp_path))
    assert outcome(processes, "a") == Outcome(127)
    assert "/nowhere/edge: No such file" in (tmp_path / "a/job.log").read_text()


@pytest.mark.parametrize(
    ("name", "code", "seen"), [("TERM", 143, 143), ("TERM", 130, 143), ("INT", 130, 130)]
)
def test_signals_reach_the_command(tmp_path: Path, name: str, code: int, seen: int) -> None:
    processes = start(tmp_path, CATCH.format(name=name, code=code))
    ready(tmp_path / "a/job.log")
    (processes.suspend if name == "TERM" else processes.end)("a")
    assert outcome(processes, "a") == Outcome(seen)


def test_a_command_does_not_answer_for_the_services_watchdog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGE_HEARTBEAT", "/heartbeat")
    monkeypatch.setenv("NOTIFY_SOCKET", "/socket")
    outcome(start(tmp_path, "env"), "a")
    lines = (tmp_path / "a/job.log").read_text().splitlines()
    assert "PYTHONUNBUFFERED=1" in lines
    assert not [line for line in lines if line.startswith(("EDGE_HEARTBEAT", "NOTIFY_SOCKET"))]


def test_a_killed_run_leaves_nothing_behind(tmp_path: Path) -> None:
    processes = start(tmp_path, "trap '' TERM; (trap '' TERM; echo ready; read line < pipe) & wait")
    ready(tmp_path / "a/job.log")
    processes.kill("a")
    assert outcome(processes, "a") == Outcome(None)


def test_a_later_service_finds_the_process_and_waits_for_its_end(tmp_path: Path) -> None:
    first = start(tmp_path, CATCH.format(name="TERM", code=143))
    ready(tmp_path / "a/job.log")
    later = JobProcesses(tmp_path)
    assert later.outcome("a", 1) is None
    later.suspend("a")
    assert outcome(first, "a") == Outcome(143)
    assert outcome(later, "a") == Outcome(143)


def test_a_second_attempt_beside_the_first_does_not_begin(tmp_path: Path) -> None:
    first = start(tmp_path, CATCH.format(name="TERM", code=143))
    ready(tmp_path / "a/job.log")
    second = start(tmp_path, "echo twice", attempt=2)
    own = second.own["a"]
    assert own.wait(DEADLINE_S) == supervisor.IN_USE
    assert second.outcome("a", 2) is None
    first.suspend("a")
    assert outcome(second, "a", 2) == Outcome(None)
    assert "twice" not in (tmp_path / "a/job.log").read_text()


def test_the_command_is_suspended_when_its_service_is_killed(tmp_path: Path) -> None:
    script = f"""
import sys
from pathlib import Path
from tests.edge_server.fleet.queue.test_processes import CATCH, ready, start
start(Path({str(tmp_path)!r}), CATCH.format(name="TERM", code=143))
ready(Path({str(tmp_path)!r}) / "a/job.log")
print("ready", flush=True)
sys.stdin.read()
"""
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", script], env=env, text=True, **pipes) as service:
        assert service.stdout is not None
        assert service.stdout.readline() == "ready\n"
        service.send_signal(signal.SIGKILL)
    assert outcome(JobProcesses(tmp_path), "a") == Outcome(143)
    assert (tmp_path / "a/job.log").read_text().endswith("TERM\n")


def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(supervisor, "LOG_BYTES", 100)
    log = supervisor.Log(Path(supervisor.LOG))
    for number in range(100):
        log.write(f"line {number}\n".encode())
    files = [path.read_text() for path in (Path(supervisor.OLD_LOG), Path(supervisor.LOG))]
    assert sum(map(len, files)) <= 220
    assert files[1].endswith("line 99\n")
