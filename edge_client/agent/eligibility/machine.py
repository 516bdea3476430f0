"""Where a device stands with its owner's rules, as a pure state machine.

may train <-> held (training waits at its batch) -> given back (held for too long)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from edge_client.agent.eligibility.conditions import Conditions
from edge_client.agent.eligibility.rules import Rules
from edge_client.agent.eligibility.verdict import MAY_TRAIN, EligibilityVerdict, judge
from schemas.values import Eligibility


@dataclass(frozen=True)
class EligibilityState:
    """The verdict, and since when, in seconds, it is in the way of a task at hand; None where none waits."""

    verdict: EligibilityVerdict = MAY_TRAIN
    waits_since: float | None = None

    @property
    def may_train(self) -> bool:
        """Whether training is allowed now."""
        return self.verdict.eligibility is Eligibility.TRAIN


@dataclass(frozen=True)
class Hold:
    """Command: let the training wait before its next batch."""


@dataclass(frozen=True)
class Resume:
    """Command: let it go on with that batch."""


@dataclass(frozen=True)
class ReportVerdict:
    """Command: tell the server, and the log, where the device stands."""

    verdict: EligibilityVerdict


@dataclass(frozen=True)
class GiveBack:
    """Command: the task has waited for too long; somebody else may do it."""

    detail: str


Command = Hold | Resume | ReportVerdict | GiveBack
Step = tuple[EligibilityState, list[Command]]


def step(standing: EligibilityState, rules: Rules, seen: Conditions, now: float, *, at_work: bool) -> Step:
    """Take what the board says at `now`, in seconds; `at_work` is whether a training task is at hand."""
    verdict = judge(rules, seen, standing.verdict)
    after = EligibilityState(verdict)
    if verdict.eligibility is Eligibility.TRAIN:
        return after, [] if standing.may_train else [Resume(), ReportVerdict(verdict)]
    commands: list[Command] = [Hold()] if standing.may_train else []
    if verdict.eligibility is not standing.verdict.eligibility:
        commands.append(ReportVerdict(verdict))
    if not at_work:
        return after, commands
    since = now if standing.waits_since is None else standing.waits_since
    if now - since >= rules.give_back_after_s:
        return after, [*commands, GiveBack(verdict.detail)]
    return replace(after, waits_since=since), commands
