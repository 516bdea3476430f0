"""The verdict on a group, by thresholds like those of hawkBit's groups; numbers calculated by hand."""

import pytest

from edge_server.releases.rollout.groups import GroupStanding, GroupVerdict, judge
from edge_server.releases.rollout.state import RolloutRules

STRICT, LENIENT = RolloutRules(success=0.95), RolloutRules(success=0.5, error=0.3)


@pytest.mark.parametrize(
    ("standing", "rules", "verdict"),
    [
        # 95% of 20 are 19, reached with one failure; one of 20 is within the 5% that may fail.
        (GroupStanding(devices=20, away=0, kept=19, failed=1), STRICT, GroupVerdict.SUCCEEDED),
        (GroupStanding(devices=20, away=0, kept=18, failed=1), STRICT, GroupVerdict.OPEN),
        (GroupStanding(devices=20, away=0, kept=18, failed=2), STRICT, GroupVerdict.FAILED),
        # Devices that are away are not counted: 10 of 10.
        (GroupStanding(devices=20, away=10, kept=10, failed=0), STRICT, GroupVerdict.SUCCEEDED),
        (GroupStanding(devices=3, away=3, kept=0, failed=0), STRICT, GroupVerdict.OPEN),
        # 30% of 10 are three: a fourth failure stops the rollout, although half of the devices kept it.
        (GroupStanding(devices=10, away=0, kept=5, failed=3), LENIENT, GroupVerdict.SUCCEEDED),
        (GroupStanding(devices=10, away=0, kept=5, failed=4), LENIENT, GroupVerdict.FAILED),
        (GroupStanding(devices=1, away=0, kept=0, failed=1), STRICT, GroupVerdict.FAILED),
        (GroupStanding(devices=1, away=0, kept=0, failed=0), STRICT, GroupVerdict.OPEN),
        # Half may fail, but nine of ten must keep the model: after two failures only eight can.
        (
            GroupStanding(devices=10, away=0, kept=3, failed=2),
            RolloutRules(success=0.9, error=0.5),
            GroupVerdict.FAILED,
        ),
    ],
)
def test_the_verdict_on_a_group(standing: GroupStanding, rules: RolloutRules, verdict: GroupVerdict) -> None:
    assert judge(standing, rules)[0] is verdict


def test_a_failure_has_a_reason() -> None:
    reason = judge(GroupStanding(devices=2, away=0, kept=0, failed=2), STRICT)[1]
    assert reason == "2 of 2 failed, more than 0.05 of the group"
