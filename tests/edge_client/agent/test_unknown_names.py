"""A task with names, options or numbers that a device does not know is declined with a reason."""

import logging
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from schemas.errors import PeerError, Reason
from schemas.messages import TrainTask
from schemas.strategy import TrainingPlan
from tests.edge_client.agent.test_full_disk import SPEC, outcome, place_at, task

UNKNOWN: dict[str, dict[str, Any]] = {
    "optimizer": {"training": TrainingPlan(optimizer="lion")},
    "objective": {"training": TrainingPlan(objectives=("kindness",))},
    "an objective's option": {"training": TrainingPlan(objectives=({"name": "prox", "nu": 1},))},
    "an objective's value": {"training": TrainingPlan(objectives=({"name": "prox", "mu": "much"},))},
    "own objective": {"own_model": {"name": "kindness"}},
    "scoring objective": {"personal": {"ratios": {}, "scored_by": {"name": "kindness"}}},
    "codec": {"uplink": ("morse",)},
    "task": {"model": SPEC.model_copy(update={"task": "divination"})},
    "model": {"model": SPEC.model_copy(update={"name": "oracle"})},
    "library's model": {"model": SPEC.model_copy(update={"name": "torchvision:oracle"})},
    "hub": {"model": SPEC.model_copy(update={"name": "timm:hf-hub:oracle/model"})},
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_task_with_an_unknown_name_is_declined(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    place = place_at(tmp_path)
    known = task(place)
    assert isinstance(known, TrainTask)
    wrong = TrainTask.model_validate({**dict(known), **UNKNOWN[what]})

    failed = outcome(wrong, place)

    assert failed.reason is Reason.INCOMPATIBLE, failed
    # No traceback.
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.parametrize("what", ["optimizer", "objective", "an objective's option"])
def test_a_device_without_torch_declines_them_too(tmp_path: Path, what: str) -> None:
    known = task(place_at(tmp_path))
    graphs = {"graph": known.blobs["state"], "step": known.blobs["state"]}
    fields = {**dict(known), "blobs": {**known.blobs, **graphs}, **UNKNOWN[what]}

    with pytest.raises(PeerError) as declined:
        OnnxTrainer().check(TrainTask.model_validate(fields))
    assert declined.value.reason == Reason.INCOMPATIBLE


@pytest.mark.parametrize("seed", [-1, 2**63, 2**80])
def test_a_seed_that_no_generator_takes_is_no_message(seed: int) -> None:
    with pytest.raises(ValidationError, match="seed"):
        TrainingPlan(seed=seed)
