"""Processes for what may crash or hang: commands that are run to their end, and a question that one answers.

The question is a line of JSON on standard input, the answer one on standard output.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import ValidationError

from schemas.base import Frozen
from schemas.errors import EdgeError

Question = TypeVar("Question", bound=Frozen)
Answer = TypeVar("Answer", bound=Frozen)


class Commands:
    """Runs one command at a time, until another thread calls `end`."""

    def __init__(self) -> None:
        self._starting, self._ended = threading.Lock(), False
        self.process: subprocess.Popen[str] | None = None

    def run(
        self,
        words: Sequence[str],
        limit_s: float,
        *,
        given: str | None = None,
        prepare: Callable[[int], None] = lambda pid: None,
        **options: Any,
    ) -> subprocess.CompletedProcess[str]:
        """Run a command to its end; `prepare` takes its process id, `options` are those of `Popen`.

        Raises `OSError` if it cannot be started, and `TimeoutExpired` once it was killed after `limit_s`.
        """
        pipe = subprocess.PIPE
        with self._starting:
            if self._ended:
                raise OSError("this process ends")
            process = self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL if given is None else pipe,
                stdout=pipe,
                stderr=pipe,
                text=True,
                errors="replace",
                start_new_session=True,
                **options,
            )
        prepare(process.pid)
        with process:
            try:
                out, err = process.communicate(given, timeout=limit_s)
            except subprocess.TimeoutExpired:
                _kill(process)
                raise
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def end(self) -> None:
        """Kill the command that runs, and start no other."""
        with self._starting:
            self._ended = True
            if self.process is not None and self.process.poll() is None:
                _kill(self.process)


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a process with all that it has started, which is its group."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def last_line(text: str) -> str:
    """The last line that is not empty: where a program has failed, it says why."""
    return (text.strip().splitlines() or [""])[-1]


def signal_name(number: int) -> str:
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


def how_ended(ended: subprocess.CompletedProcess[str], most: int) -> str:
    """The signal or exit code of a command, and the end of its last line, `most` characters of it."""
    code = ended.returncode
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{how}: {last_line(ended.stderr)[-most:]}".removesuffix(": ")


class NoAnswer(EdgeError):
    """The process has not answered; the text says why."""


class _Failure(Frozen):
    """What the process raised in place of an answer."""

    failed: str


def ask(module: str, question: Frozen, kind: type[Answer], *, limit_s: float) -> Answer:
    """The answer of `python -m module` in `limit_s` seconds; raises `NoAnswer` without one."""
    command = [sys.executable, "-m", module, str(limit_s)]
    try:
        ended = Commands().run(command, limit_s, given=question.model_dump_json())
    except OSError as error:
        raise NoAnswer(f"was not tried: {error}") from error
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"was not done within {limit_s:.1f} s") from None
    if ended.returncode == -signal.SIGALRM:
        raise NoAnswer(f"was not done within {limit_s:.1f} s")
    if ended.returncode:
        raise NoAnswer(f"ended its process with {how_ended(ended, 200)}")
    # Libraries print to standard output as well.
    for line in reversed(ended.stdout.splitlines()):
        with contextlib.suppress(ValidationError):
            return kind.model_validate_json(line)
        with contextlib.suppress(ValidationError):
            raise NoAnswer(_Failure.model_validate_json(line).failed)
    raise NoAnswer("has said nothing of use")


def answer(kind: type[Question], work: Callable[[Question], Frozen]) -> int:
    """Answer the question to this process, which the alarm ends after the seconds that it was given."""
    # The default action ends the process also where C code never returns.
    signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
    question = kind.model_validate_json(sys.stdin.buffer.read())
    try:
        said: Frozen = work(question)
    except Exception as error:
        said = _Failure(failed=f"failed: {' '.join(str(error).split())[:400] or type(error).__name__}")
    print(f"\n{said.model_dump_json()}", flush=True)
    return 0
