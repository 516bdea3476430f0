"""How long an alarm about drifted data stands."""

import pytest

from edge_client.data.drift_alarm import DriftAlarm
from schemas.values import DriftFinding

FOUND = DriftFinding(statistic="loss", p_value=0.001, examples=60)


def trainings_until_the_end(losses: list[float]) -> int | None:
    """The number of trainings after which the alarm has ended; None if it stands after all of them."""
    alarm: DriftAlarm | None = DriftAlarm(FOUND)
    for count, loss in enumerate(losses, 1):
        assert alarm is not None
        alarm = alarm.after_training(loss)
        if alarm is None:
            return count
    return None


@pytest.mark.parametrize(
    ("losses", "trainings"),
    [
        pytest.param([2.0, 1.5, 1.2, 1.0, 0.9], None, id="each training helps"),
        pytest.param([2.0, 1.5, 1.49, 1.48], 4, id="two in a row do not"),
        pytest.param([2.0, 1.5, 1.6, 1.4, 1.39, 1.1], None, id="one that does not is forgiven"),
        pytest.param([2.0, 1.0, 0.98, 0.97], 4, id="a gain is a share of the first loss, not of the last"),
        pytest.param([0.5, 0.5, 0.5], 3, id="a false alarm of a model that has learned all"),
    ],
)
def test_an_alarm_stands_while_training_helps(losses: list[float], trainings: int | None) -> None:
    assert trainings_until_the_end(losses) == trainings


def test_small_gains_add_up_to_one() -> None:
    # 1.5 to 1.47 is too little, 1.5 to 1.45 is enough.
    assert trainings_until_the_end([2.0, 1.5, 1.47, 1.45, 1.44, 1.43]) == 6


def test_without_a_loss_an_alarm_ends_with_the_first_training() -> None:
    assert DriftAlarm(FOUND).after_training(None) is None
    assert DriftAlarm(FOUND, first=2.0, lowest=2.0).after_training(None) is None
