"""Starts the installed client, and goes back to the former one if a new one fails.

`edge-client install` copies this file to `ROOT/launch`, outside the environments that it starts: it uses the
standard library alone, and no version of the client changes it.

    ROOT/current      a link to the environment in use: `a`, `b`, or another folder
    ROOT/trial.json   while a new environment is watched: which one, the former one, its starts and limits
    ROOT/alive        touched by a client that is watched, as a sign of life

An environment that is not on trial is executed in place of this process. One on trial is a child: it is
started at most `starts` times, and goes back if it dies too often or gives no sign of life. Each decision is
on disk before it is acted on, so that after a power cut the next start finds it.
"""

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

RESTART = 75  # The exit code of a client that asks to be started again, for instance in another environment
BAD_USAGE = 2
PROGRAM = "bin/edge-client"
POLL_S = 0.1
ENDING = (signal.SIGTERM, signal.SIGINT)  # Signals that end the client and this process
ROOT_VARIABLE, PARENT_VARIABLE = "EDGE_CLIENT_ROOT", "EDGE_LAUNCHER_PID"

Trial = dict[str, Any]


def read_trial(root: Path) -> Trial | None:
    """The trial, if a whole one is noted."""
    try:
        trial = json.loads((root / "trial.json").read_text(encoding="utf-8"))
        return trial if isinstance(trial, dict) and trial.get("to") and trial.get("former") else None
    except (OSError, ValueError):
        return None


def write_trial(root: Path, trial: Trial) -> None:
    """Note the trial, on disk when this returns."""
    aside = root / ".trial.json.part"
    with aside.open("w", encoding="utf-8") as file:
        json.dump(trial, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(root / "trial.json")
    sync_folder(root)


def forget_trial(root: Path) -> None:
    """Remove the note; the environment in use is no longer watched."""
    with contextlib.suppress(FileNotFoundError):
        (root / "trial.json").unlink()
        sync_folder(root)


def sync_folder(path: Path) -> None:
    """Wait until a folder's names are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_current(root: Path) -> str:
    """What the link `current` names; empty without one."""
    try:
        return str((root / "current").readlink())
    except OSError:
        return ""


def point_current(root: Path, target: str) -> None:
    """Let `current` name another environment, in one rename."""
    if read_current(root) == target:
        return
    aside = root / ".current.part"
    aside.unlink(missing_ok=True)
    aside.symlink_to(target)
    aside.replace(root / "current")
    sync_folder(root)


def on_trial(root: Path, trial: Trial | None) -> bool:
    """Whether the environment in use is watched."""
    return trial is not None and not trial.get("back") and read_current(root) == trial["to"]


def go_back(root: Path, trial: Trial, cause: str, detail: str) -> None:
    """Note why, then use the former environment."""
    write_trial(root, {**trial, "back": {"cause": cause, "detail": detail[:400]}})
    point_current(root, trial["former"])


def settle(root: Path) -> Trial | None:
    """The trial, if it goes on: finishes an interrupted return, gives up a version with too many starts."""
    trial = read_trial(root)
    if trial is not None and trial.get("back") and read_current(root) == trial["to"]:
        point_current(root, trial["former"])
    if trial is None or not on_trial(root, trial):
        return None
    if trial.get("started", 0) >= trial.get("starts", 3):
        say(f"{trial['to']} was started {trial['started']} times: back to {trial['former']}")
        go_back(
            root,
            trial,
            "crashes",
            f"{trial['started']} starts while it was watched; {trial.get('ended', '')}",
        )
        return None
    return trial


def program(root: Path) -> Path | None:
    """The client in use; if its environment is damaged, that of another one."""
    for name in (read_current(root), "a", "b"):
        path = root / name / PROGRAM
        if name and os.access(path, os.X_OK):
            return path
    return None


def say(text: str) -> None:
    """Tell the journal."""
    print(f"launch: {text}", file=sys.stderr, flush=True)


class Watched:
    """A client on trial, as a child of this process."""

    def __init__(self, root: Path, path: Path, words: list[str], silent_s: float) -> None:
        self._alive, self._silent_s = root / "alive", silent_s
        self._seen: float | None = self._read_touch_time()
        self._heard, self.ordered_to_end = time.monotonic(), False
        self.code: int | None = None
        # A signal between the fork and the handlers would end this process alone.
        signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
        self._pid = os.fork()
        if self._pid == 0:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)
            become(path, words, {PARENT_VARIABLE: str(os.getppid()), "WATCHDOG_PID": str(os.getpid())})
        for number in ENDING:
            signal.signal(number, self._pass_on)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDING)

    def wait(self) -> str:
        """Wait for its end; returns how it ended."""
        began = time.monotonic()
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                return f"it ended with {self.code} after {time.monotonic() - began:.1f} s"
            if self._silent():
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
                self.code = None
                return f"no sign of life for {self._silent_s:g} s"
            # No system call waits for both the end of a child and a change of a file.
            time.sleep(POLL_S)

    def _silent(self) -> bool:
        touched, now = self._read_touch_time(), time.monotonic()
        if touched != self._seen:
            self._seen, self._heard = touched, now
        return now - self._heard > self._silent_s

    def _read_touch_time(self) -> float | None:
        try:
            return self._alive.stat().st_mtime
        except OSError:
            return None

    def _pass_on(self, number: int, _: Any) -> None:
        self.ordered_to_end = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)


def become(path: Path, words: list[str], variables: dict[str, str]) -> None:
    """Execute a client in place of this process."""
    try:
        os.execve(path, [str(path), *words], {**os.environ, **variables})
    except OSError as error:
        say(f"{path}: {error.strerror}")
        os._exit(BAD_USAGE)


def launch(root: Path, words: list[str]) -> int:
    """Start the client until it ends for good; does not return if it is not on trial."""
    os.environ[ROOT_VARIABLE] = str(root)
    os.environ.pop(PARENT_VARIABLE, None)
    while True:
        trial, path = settle(root), program(root)
        if path is None:
            say(f"{root}/current is not an environment with {PROGRAM}: run `edge-client install` again")
            return BAD_USAGE
        if trial is None:
            become(path, words, {})
        else:
            code = watch(root, path, words, trial)
            if code is not None:
                return code


def watch(root: Path, path: Path, words: list[str], trial: Trial) -> int | None:
    """Start a client on trial and wait for its end; an exit code if this process shall end as well."""
    trial = {**trial, "started": trial.get("started", 0) + 1}
    write_trial(root, trial)
    child = Watched(root, path, words, float(trial.get("silent_s", 600.0)))
    ended = child.wait()
    now = read_trial(root)
    if child.ordered_to_end:
        if now is not None and on_trial(root, now):
            write_trial(root, {**now, "started": trial["started"] - 1})
        return child.code or 0
    if child.code == RESTART:
        return None
    if now is None or not on_trial(root, now):
        return 1 if child.code is None else child.code
    say(f"{trial['to']}: {ended}")
    if child.code is None:
        go_back(root, now, "hangs", ended)
    else:
        write_trial(root, {**now, "ended": ended})
        # A client that dies at its start is not started again in a tight loop.
        time.sleep(float(now.get("pause_s", 5.0)))
    return (child.code or 0) if child.ordered_to_end else None


def main() -> int:
    """Start the client with the given arguments."""
    return launch(Path(sys.argv[0]).absolute().parent, sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
