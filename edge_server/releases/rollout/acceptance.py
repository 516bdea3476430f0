"""Judge a group: wait, open the next one, or stop the rollout."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from edge_server.releases.rollout.rules import RolloutRules, rounded_up
from edge_server.releases.rollout.target import FAILED, Target, TargetStatus


class GroupVerdict(StrEnum):
    """What follows from a group's results."""

    OPEN = "open"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


@dataclass(frozen=True)
class GroupStanding:
    """Counts of a group: all devices, those `away` and excluded, those that `kept` the model or `failed`."""

    devices: int
    away: int
    kept: int
    failed: int

    @property
    def counted(self) -> int:
        """The devices that shares refer to."""
        return self.devices - self.away


def count_group(targets: Iterable[Target]) -> GroupStanding:
    statuses = [target.status for target in targets]
    return GroupStanding(
        devices=len(statuses),
        away=statuses.count(TargetStatus.AWAY),
        kept=statuses.count(TargetStatus.KEPT),
        failed=sum(status in FAILED for status in statuses),
    )


def judge(standing: GroupStanding, rules: RolloutRules) -> tuple[GroupVerdict, str]:
    """The group's verdict under the rules, and why.

    Like hawkBit's conditions: success at a share of `success` or more, failure above a share of `error`. In
    addition a group that can no longer succeed has failed, or the rollout would hang.
    """
    counted, failed = standing.counted, standing.failed
    if counted == 0:
        return GroupVerdict.OPEN, ""
    needed = rounded_up(rules.success * counted)
    if failed > rounded_down(rules.most_failures * counted):
        return (
            GroupVerdict.FAILED,
            f"{failed} of {counted} failed, more than {rules.most_failures:.3g} of the group",
        )
    if counted - failed < needed:
        return GroupVerdict.FAILED, f"{failed} of {counted} failed, so {needed} cannot keep it any more"
    if standing.kept >= needed:
        return GroupVerdict.SUCCEEDED, f"{standing.kept} of {counted} kept it"
    return GroupVerdict.OPEN, ""


def rounded_down(number: float) -> int:
    """Round down, tolerating floating-point error: 5% of 20 is 1, not 0."""
    return int(round(number, 9))
