"""A device without torch trains a library's network without the library: it builds no network."""

import sys
from pathlib import Path

import pytest

from edge_client.models import zoo
from edge_client.models.registry import InputRecord
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.torch_trainer import TorchTrainer
from schemas.errors import PeerError, Reason
from schemas.messages import TrainTask
from tests.edge_client.training.step_graphs.running.normalised import normalised
from tests.edge_client.training.step_graphs.running.test_trainer import TorchFreeBench, assert_alike, trained

SMALL = zoo.Library("timm", lambda: ["small"], lambda _, *given: normalised(*given), lambda *_: InputRecord())


def test_only_a_device_with_torch_needs_the_library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zoo, "_LIBRARIES", {"timm": SMALL})
    bench = TorchFreeBench(tmp_path, "fedavg", "model.name=timm:small")
    task, place = bench.tasks(1, 1)["weak"], bench.places["weak"]
    assert isinstance(task, TrainTask)
    theirs = trained(task, place, TorchTrainer())

    for name in ("timm", "torchvision"):
        monkeypatch.setitem(sys.modules, name, None)
    assert_alike(place, trained(task, place, OnnxTrainer(threads=1)), theirs)
    with pytest.raises(PeerError, match="needs timm: pip install") as declined:
        TorchTrainer().check(task)
    assert declined.value.reason == Reason.INCOMPATIBLE
