"""A question that a process of its own answers, since what is tried there may crash or hang.

The question is a line of JSON on standard input, the answer one on standard output.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import TypeVar

from pydantic import ValidationError

from schemas.base import Frozen
from schemas.errors import EdgeError

Question = TypeVar("Question", bound=Frozen)
Answer = TypeVar("Answer", bound=Frozen)


class NoAnswer(EdgeError):
    """The process has not answered; the text says why."""


class _Failure(Frozen):
    """What the process raised in place of an answer."""

    failed: str


def ask(module: str, question: Frozen, kind: type[Answer], *, limit_s: float) -> Answer:
    """The answer of `python -m module` in `limit_s` seconds; raises `NoAnswer` without one."""
    late, pipe = f"was not done within {limit_s:.1f} s", subprocess.PIPE
    command = [sys.executable, "-m", module, str(limit_s)]
    try:
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise NoAnswer(f"was not tried: {error}") from error
    with process:
        try:
            out, err = process.communicate(question.model_dump_json().encode(), timeout=limit_s)
        except subprocess.TimeoutExpired:
            # Its group is the process and what it has started.
            os.killpg(process.pid, signal.SIGKILL)
            raise NoAnswer(late) from None
    if process.returncode == -signal.SIGALRM:
        raise NoAnswer(late)
    if code := process.returncode:
        lines = err.decode(errors="replace").strip().splitlines() or [""]
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise NoAnswer(f"ended its process with {how}: {lines[-1][-200:]}".removesuffix(": "))
    # Libraries print to standard output as well.
    for line in reversed(out.splitlines()):
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
