"""The queue of jobs as a pure state machine: `step(queue, event, now)` returns the next state and commands.

    (due) -> waiting -> running -> done | failed | stopped
                ^          | suspended, cut off, or broken down
                +- suspended

No socket, clock, thread or file. The journal writes the next state before a command is carried out, so that
a service that dies at any moment finds it again: a run that it finds running has a process that still runs,
or one that has ended, which is the event `RunEnded`.
"""

import signal
from collections.abc import Mapping
from dataclasses import dataclass, replace

from edge_server.fleet.queue import job as schedule
from edge_server.fleet.queue import state
from edge_server.fleet.queue.job import Job, JobRun, RunPhase, Wanted, run_name
from edge_server.fleet.queue.turns import NO_DEVICES, Turns, take_turns
from schemas.base import fields_of


def step(queue: state.Queue, event: state.Event, now: float) -> state.Step:
    """Apply one event."""
    match event:
        case state.JobsChanged(jobs):
            return _with_jobs(queue, jobs), []
        case state.RunEnded():
            return _on_run_end(queue, event, now), []
        case state.Closing():
            return _end_unwanted(replace(queue, closing=True), now)
        case state.Tick(fleet):
            return _tick(queue, fleet, now)


def _with_jobs(queue: state.Queue, jobs: Mapping[str, Job]) -> state.Queue:
    """The new definitions; a job is removed only while it has no run on."""
    return replace(
        queue,
        jobs=jobs,
        runs={name: run for name, run in queue.runs.items() if name in jobs},
        progress={name: progress for name, progress in queue.progress.items() if name in jobs},
    )


def _on_run_end(queue: state.Queue, event: state.RunEnded, now: float) -> state.Queue:
    run = queue.run(event.run)
    if run is None or not run.on or event.attempt != run.attempt:
        return queue
    queue = _charge_share(queue, run, now)
    ending = ending_of(run, event, queue.rules, now)
    ended = run.model_copy(
        update={
            **fields_of(ending, "phase", "why", "not_before", "crashes"),
            "code": event.code,
            "signalled_at": None,
            "short_since": None,
        }
    )
    return queue.with_run(ended.model_copy(update={"ended_at": now}) if ended.over else ended)


def _tick(queue: state.Queue, fleet: state.Fleet, now: float) -> state.Step:
    """What comes due starts with the next tick, which knows the devices as they are then."""
    for run in queue.on():
        queue = _charge_share(queue, run, now)
    turns = take_turns(queue, fleet, now)
    if not queue.closing:
        for job in queue.jobs.values():
            queue = _follow_schedule(queue, job, now)
    queue = _watch_devices(queue, fleet, now)
    queue, commands = _end_unwanted(queue, now)
    queue, starts = _start_runs(queue, turns, now)
    return queue, [*commands, *starts]


def _charge_share(queue: state.Queue, run: JobRun, now: float) -> state.Queue:
    """Count the time since the last count for the federation's share."""
    job, seconds = queue.jobs[run.job], max(0.0, now - run.counted_at)
    shares = queue.shares.with_use(job.federation, seconds, job.weight)
    return replace(queue.with_run(run.model_copy(update={"counted_at": now})), shares=shares)


# --- what is due ---
def _follow_schedule(queue: state.Queue, job: Job, now: float) -> state.Queue:
    """Follow a job's schedule and its requests; of times that were missed, one run comes of all."""
    progress = queue.progress.get(job.name) or state.JobProgress(since=-1.0)
    if progress.since != job.since:
        first = None if job.schedule is None else schedule.next_time(job.schedule, job.since, since=job.since)
        progress = progress.model_copy(update={"since": job.since, "next_at": first})
    if job.wanted is not Wanted.ACTIVE:
        return queue.with_progress(job.name, progress)
    if job.asked > progress.answered:
        queue, progress = _answer_request(queue, job, progress, now)
    if job.schedule is not None and progress.next_at is not None and progress.next_at <= now:
        following = schedule.next_time(job.schedule, now, since=job.since)
        queue, progress = _came_due(queue, job, progress, progress.next_at, following)
    return queue.with_progress(job.name, progress)


def _answer_request(
    queue: state.Queue, job: Job, progress: state.JobProgress, now: float
) -> tuple[state.Queue, state.JobProgress]:
    """Answer a request to run now; a run that waits to try again does so now."""
    progress = progress.model_copy(update={"answered": job.asked})
    run = queue.runs.get(job.name)
    if run is not None and not run.over:
        return queue.with_run(run.model_copy(update={"not_before": 0.0})), progress
    return _add_run(queue, job, progress, now, by="request")


def _came_due(
    queue: state.Queue, job: Job, progress: state.JobProgress, due: float, following: float | None
) -> tuple[state.Queue, state.JobProgress]:
    progress = progress.model_copy(update={"next_at": following})
    run = queue.runs.get(job.name)
    if run is not None and not run.over:
        return queue, progress.model_copy(update={"missed": progress.missed + 1})
    return _add_run(queue, job, progress, due, by="schedule")


def _add_run(
    queue: state.Queue, job: Job, progress: state.JobProgress, due: float, *, by: str
) -> tuple[state.Queue, state.JobProgress]:
    """A new run; its time, and thereby its name, is later than that of each run before."""
    due = max(float(int(due)), progress.last_due + 1)
    run = JobRun(name=run_name(job.name, due), job=job.name, due=due, by=by)
    return queue.with_run(run), progress.model_copy(update={"last_due": due})


# --- what must end ---
def _watch_devices(queue: state.Queue, fleet: state.Fleet, now: float) -> state.Queue:
    """Note since when running jobs lack eligible devices."""
    for run in queue.on():
        job = queue.jobs[run.job]
        short = fleet.get(job.name, NO_DEVICES).eligible < job.min_eligible
        since = None if not short else now if run.short_since is None else run.short_since
        if since != run.short_since:
            queue = queue.with_run(run.model_copy(update={"short_since": since}))
    return queue


def _end_unwanted(queue: state.Queue, now: float) -> state.Step:
    """Suspend, end or kill what may not run any more; a waiting run of a stopped job is over."""
    commands: list[state.Command] = []
    for run in queue.runs.values():
        stopped = queue.jobs[run.job].wanted is Wanted.STOPPED
        if run.is_queued and stopped:
            over = {"phase": RunPhase.STOPPED, "ended_at": now, "why": "stopped on request"}
            queue = queue.with_run(run.model_copy(update=over))
        elif run.on:
            queue, command = _let_end(queue, run, now)
            commands += command
    return queue, commands


def _let_end(queue: state.Queue, run: JobRun, now: float) -> state.Step:
    rules, job = queue.rules, queue.jobs[run.job]
    if run.signalled_at is not None and now - run.signalled_at >= rules.end_s:
        return queue.with_run(run.model_copy(update={"signalled_at": now})), [state.KillRun(run.name)]
    if job.wanted is Wanted.STOPPED and run.phase is not RunPhase.STOPPING and not queue.closing:
        return _with_signal(queue, run, RunPhase.STOPPING, "", now), [state.EndRun(run.name)]
    why = _pause(queue, job, run, now)
    if why and run.phase is RunPhase.RUNNING:
        return _with_signal(queue, run, RunPhase.SUSPENDING, why, now), [state.SuspendRun(run.name)]
    return queue, []


def _pause(queue: state.Queue, job: Job, run: JobRun, now: float) -> str:
    """Why a running job must not go on for now; empty if it may."""
    if queue.closing:
        return "the service ended, and it continues"
    if job.wanted is Wanted.PAUSED:
        return "paused on request"
    lacks = run.short_since is not None and now - run.short_since >= queue.rules.grace_s
    return f"fewer than {job.min_eligible} devices were eligible" if lacks else ""


def _with_signal(queue: state.Queue, run: JobRun, phase: RunPhase, why: str, now: float) -> state.Queue:
    return queue.with_run(run.model_copy(update={"phase": phase, "why": why, "signalled_at": now}))


# --- what may start ---
def _start_runs(queue: state.Queue, turns: Turns, now: float) -> state.Step:
    commands: list[state.Command] = []
    for waiting in turns.starts:
        job = queue.jobs[waiting.job]
        run = waiting.model_copy(
            update={
                "phase": RunPhase.RUNNING,
                "attempt": waiting.attempt + 1,
                "began_at": now if waiting.began_at is None else waiting.began_at,
                "attempt_at": now,
                "counted_at": now,
                "not_before": 0.0,
                "why": "",
                "code": None,
            }
        )
        queue = replace(queue.with_run(run), shares=queue.shares.with_start(job.federation))
        commands.append(state.StartRun(job, run))
    return queue, commands


DONE, FAILED, BAD_USAGE, INTERRUPTED, SUSPENDED = 0, 1, 2, 130, 143  # Exit codes of commands
STEADY_S = 600.0  # An attempt that has lasted as long is not counted with the crashes before it


@dataclass(frozen=True)
class Ending:
    """The phase that follows, why, and the time before which no attempt starts."""

    phase: RunPhase
    why: str = ""
    not_before: float = 0.0
    crashes: int = 0


def ending_of(run: JobRun, ended: state.RunEnded, rules: state.QueueRules, now: float) -> Ending:
    """What follows from the exit code of a run's process."""
    code = ended.code
    if code == DONE:
        return Ending(RunPhase.DONE)
    if run.phase is RunPhase.STOPPING:
        return Ending(RunPhase.STOPPED, "stopped on request")
    failed = ended.over and code not in (INTERRUPTED, SUSPENDED)
    if code is None or code == SUSPENDED or (run.phase is RunPhase.SUSPENDING and not failed):
        why = "cut off, and continues" if code is None else run.why or "suspended, and continues"
        return Ending(RunPhase.SUSPENDED, why, crashes=run.crashes)
    if code == INTERRUPTED:
        return Ending(RunPhase.STOPPED, "interrupted")
    if code < 0 or not ended.over:
        return _end_by_crash(run, ended, code, rules, now)
    reason = "its arguments or its configuration are wrong" if code == BAD_USAGE else "it failed"
    return Ending(RunPhase.FAILED, f"{reason} (exit code {code}): {_said_text(ended)}")


def _said_text(ended: state.RunEnded) -> str:
    return ended.said or "see its log"


def _end_by_crash(
    run: JobRun, ended: state.RunEnded, code: int, rules: state.QueueRules, now: float
) -> Ending:
    crashes = 1 if now - run.attempt_at >= STEADY_S else run.crashes + 1
    how = f"ended by signal {_signal(-code)}" if code < 0 else f"broke off with exit code {code}"
    if crashes >= rules.crashes:
        return Ending(
            RunPhase.FAILED, f"{how}, {crashes} times in a row: {_said_text(ended)}", crashes=crashes
        )
    wait = rules.retry_s * 2 ** (crashes - 1)
    reason = f"{how}: {ended.said}" if ended.said else how
    return Ending(RunPhase.SUSPENDED, reason, now + wait, crashes)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
