"""A training's update says whether the alarm about the device's data stands."""

from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.agent.task_runner import do_training
from edge_client.data.drift_alarm import DriftAlarm
from schemas.messages import TrainTask
from schemas.values import DriftFinding
from tests.integration.bench import Bench

FOUND = DriftFinding(statistic="loss", p_value=0.001, examples=60)


@pytest.mark.parametrize(
    ("alarm", "said"),
    [
        pytest.param(None, None, id="no alarm"),
        pytest.param(DriftAlarm(FOUND), FOUND, id="the first training"),
        pytest.param(DriftAlarm(FOUND, first=1e6, lowest=1e6), FOUND, id="a training that helps"),
        pytest.param(DriftAlarm(FOUND, first=0.0, lowest=0.0, vain=1), None, id="the last of those in vain"),
    ],
)
def test_an_update_says_of_the_alarm(
    tmp_path: Path, alarm: DriftAlarm | None, said: DriftFinding | None
) -> None:
    bench = Bench(tmp_path, "fedavg")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    assert isinstance(task, TrainTask)
    alarmed = replace(place, data=replace(place.data, alarm=alarm))
    update = do_training(task, alarmed, on_epoch=lambda _: None, should_stop=lambda: False)
    assert update.drift == said
