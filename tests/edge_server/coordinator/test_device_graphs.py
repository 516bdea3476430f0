"""Devices that train the same sub-model get the same graphs, drawn and stored once."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_client.storage.blob_store import BlobStore
from edge_server.coordinator import device_graphs
from edge_server.coordinator.device_graphs import DeviceGraphs
from edge_server.coordinator.tasks.task import TaskPlan
from edge_server.rounds.fleet import Device
from edge_server.strategy.pruning.interface import Cut
from schemas.errors import EdgeError
from schemas.submodel import SubModelSpec

CHUNK = 1 << 16


class Drawn:
    """Stands for the drawing: a graph's bytes are the number of kept channels."""

    def __init__(self, *_: Any) -> None:
        self.calls: list[int] = []

    def of(self, params: Any, spec: SubModelSpec, *_: Any, trains: bool, **__: Any) -> dict[str, bytes]:
        kept = spec.count("hidden", 9)
        self.calls.append(kept)
        if kept == 1:
            raise EdgeError("too narrow")
        return {"step": f"{kept} {trains}".encode()}


@pytest.fixture
def graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceGraphs:
    monkeypatch.setattr(device_graphs, "StepGraphs", Drawn)
    monkeypatch.setattr(DeviceGraphs, "widths_of", lambda *_: {})
    spec = SimpleNamespace(input_shape=(1,), name="network")
    network = SimpleNamespace(parts=SimpleNamespace(frozen=lambda channels: frozenset()))
    config = SimpleNamespace(training=SimpleNamespace(augment=()))
    context = SimpleNamespace(channel_map=None, spec=spec, network=network, config=config)
    model = SimpleNamespace(network=None, context=context, params_of=lambda spec: {})
    return DeviceGraphs(cast(Any, model), BlobStore(tmp_path))


def job(kept: int, epochs: int = 1) -> TaskPlan:
    return TaskPlan(1, Cut(SubModelSpec(kept={"hidden": kept})), 0.5, local_epochs=epochs)


def test_a_sub_model_is_drawn_once_for_all_its_devices(graphs: DeviceGraphs) -> None:
    jobs = {"a": job(3), "b": job(3), "c": job(3, epochs=0), "d": job(5), "torch": job(7), "narrow": job(1)}
    devices = [cast(Device, SimpleNamespace(name=name)) for name in (*jobs, "idle")]
    found = graphs.for_training(
        jobs, devices, CHUNK, lambda device: "torch" if device.name == "torch" else "onnx"
    )
    assert cast(Any, graphs).steps.calls == [3, 3, 5, 1]
    assert found["a"] == found["b"] != found["c"]
    assert set(found) == {"a", "b", "c", "d"}
    assert graphs.left_out == {"narrow": "too narrow"}
    assert set(jobs) == {"a", "b", "c", "d", "torch"}
