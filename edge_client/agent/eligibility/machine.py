"""Eligibility as a pure state machine.

may train <-> held (training waits before its next batch) -> given back (held for too long)
"""

from dataclasses import dataclass, replace

from edge_client.agent.eligibility.rules import Rules
from edge_client.agent.eligibility.verdict import MAY_TRAIN, Conditions, EligibilityVerdict, judge
from schemas.values import Eligibility


@dataclass(frozen=True)
class EligibilityState:
    """The verdict, and since when, in seconds, a task has been waiting; None if none waits."""

    verdict: EligibilityVerdict = MAY_TRAIN
    waits_since: float | None = None

    @property
    def may_train(self) -> bool:
        return self.verdict.eligibility is Eligibility.TRAIN


@dataclass(frozen=True)
class Hold:
    """Command: pause training before its next batch."""


@dataclass(frozen=True)
class Resume:
    """Command: resume training."""


@dataclass(frozen=True)
class ReportVerdict:
    """Command: report the verdict to the server and the log."""

    verdict: EligibilityVerdict


@dataclass(frozen=True)
class GiveBack:
    """Command: decline the task, which has waited too long, so that another device can do it."""

    detail: str


Command = Hold | Resume | ReportVerdict | GiveBack
Step = tuple[EligibilityState, list[Command]]


def step(state: EligibilityState, rules: Rules, seen: Conditions, now: float, *, at_work: bool) -> Step:
    """Apply the rules to the conditions at `now`, in seconds; `at_work`: a training task is at hand."""
    verdict = judge(rules, seen, state.verdict)
    after = EligibilityState(verdict)
    if verdict.eligibility is Eligibility.TRAIN:
        return after, [] if state.may_train else [Resume(), ReportVerdict(verdict)]
    commands: list[Command] = [Hold()] if state.may_train else []
    if verdict.eligibility is not state.verdict.eligibility:
        commands.append(ReportVerdict(verdict))
    if not at_work:
        return after, commands
    since = now if state.waits_since is None else state.waits_since
    if now - since >= rules.give_back_after_s:
        return after, [*commands, GiveBack(verdict.detail)]
    return replace(after, waits_since=since), commands
