"""What the end of a run's process means."""

import signal
from dataclasses import dataclass

from edge_server.fleet.queue.events import RunEnded
from edge_server.fleet.queue.job import JobRun, RunPhase
from edge_server.fleet.queue.state import QueueRules

DONE, FAILED, BAD_USAGE, INTERRUPTED, SUSPENDED = 0, 1, 2, 130, 143  # Exit codes of commands
STEADY_S = 600.0  # An attempt that has lasted as long is not counted with the crashes before it


@dataclass(frozen=True)
class Ending:
    """The phase that follows, why, and the time before which no attempt starts."""

    phase: RunPhase
    why: str = ""
    not_before: float = 0.0
    crashes: int = 0


def ending_of(run: JobRun, ended: RunEnded, rules: QueueRules, now: float) -> Ending:
    """What follows from the exit code of a run's process."""
    code = ended.code
    if code == DONE:
        return Ending(RunPhase.DONE)
    if run.phase is RunPhase.STOPPING:
        return Ending(RunPhase.STOPPED, "stopped on request")
    failed = ended.over and code not in (INTERRUPTED, SUSPENDED)
    if code is None or code == SUSPENDED or (run.phase is RunPhase.SUSPENDING and not failed):
        why = "cut off, and goes on" if code is None else run.why or "suspended, and goes on"
        return Ending(RunPhase.SUSPENDED, why, crashes=run.crashes)
    if code == INTERRUPTED:
        return Ending(RunPhase.STOPPED, "interrupted")
    if code < 0 or not ended.over:
        return _crashed(run, ended, code, rules, now)
    reason = "its arguments or its configuration are wrong" if code == BAD_USAGE else "it failed"
    return Ending(RunPhase.FAILED, f"{reason} (exit code {code}): {_said(ended)}")


def _said(ended: RunEnded) -> str:
    return ended.said or "see its log"


def _crashed(run: JobRun, ended: RunEnded, code: int, rules: QueueRules, now: float) -> Ending:
    crashes = 1 if now - run.attempt_at >= STEADY_S else run.crashes + 1
    how = f"ended by signal {_signal(-code)}" if code < 0 else f"broke off with exit code {code}"
    if crashes >= rules.crashes:
        return Ending(RunPhase.FAILED, f"{how}, {crashes} times in a row: {_said(ended)}", crashes=crashes)
    wait = rules.retry_s * 2 ** (crashes - 1)
    reason = f"{how}: {ended.said}" if ended.said else how
    return Ending(RunPhase.SUSPENDED, reason, now + wait, crashes)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
