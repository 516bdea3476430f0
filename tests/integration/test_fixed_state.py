"""What a network draws besides its weights is the server's on every device and in every copy of the model."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from edge_client.agent.task_runner import do_delivery
from edge_client.models.fixed_state import fixed_tensors
from edge_server.config.load import load_config
from edge_server.coordinator.coordinator import assemble
from edge_server.coordinator.exporter import EarlyGraphs
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.coordinator.model_process import EvaluationJob, ModelBench, ModelSetup
from edge_server.observability.dashboard.grad_cam_process import tier_model
from edge_server.rounds.events import PlanRound
from edge_server.storage.recovery import Resumption
from edge_server.storage.run_folder import FIXED_STATE, RunFolder
from schemas.capabilities import ALL, Capability
from schemas.errors import ConfigError
from schemas.submodel import SubModelSpec
from schemas.tensors.files import FlatGroups, write_tensors
from tests.integration.bench import bench_of, file_outputs, outputs_of
from tests.other_networks import NAME
from tests.slow import slow

ORDER = np.arange(64)[::-1].copy()


@pytest.mark.parametrize(
    ("network", "recipe", "trainer"),
    [
        ("Ordered", "fedavg", "torch"),
        ("Hidden", "attending", "torch"),
        slow("Waves", "fedavg", "torch"),
        ("Switched", "ditto", "torch"),
        ("Ordered", "fedavg", "onnx"),
    ],
)
def test_the_models_of_devices_compute_what_the_servers_does(
    network: str, recipe: str, trainer: str, tmp_path: Path
) -> None:
    run = bench_of(tmp_path, network, recipe, "personalise-epochs=0", trainer=trainer)
    run.round(1)
    model = run.coordinator.model
    for name, task in run.tasks(2, 2, deliver=True).items():
        place = run.places[name]
        assert task.blobs["fixed"].size < 3000
        do_delivery(task, place)
        found = file_outputs(place.models / "model.onnx")
        # With "ditto" each device has a model of its own.
        if recipe != "ditto":
            expected = outputs_of(model.network.sub_model(model.params_of(task.spec), task.spec))
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def with_order(folder: Path, order: np.ndarray) -> None:
    """As if the run had begun under another torch, which draws another order from the same seed."""
    for version in (folder / "models").iterdir():
        with (version / FIXED_STATE).open("wb") as file:
            write_tensors(file, FlatGroups({"fixed": {"order": order}}))


def order_of(module: nn.Module) -> np.ndarray:
    return fixed_tensors(module)["order"].numpy()


def test_a_resumed_run_and_all_that_read_its_folder_use_the_state_it_began_with(tmp_path: Path) -> None:
    run = bench_of(tmp_path, "Ordered")
    run.round(1)
    config = run.coordinator.context.config
    run.coordinator.suspend()
    with_order(run.folder.path, ORDER)
    again = assemble(config, "run-1", run.folder, resume=Resumption(1))
    whole = again.model.network.sub_model(again.model.state.params, SubModelSpec())
    assert (order_of(whole) == ORDER).all()
    assert (again.model.fixed["order"] == ORDER).all()
    manifest = json.loads((run.folder.version(1) / "manifest.json").read_text())
    assert len(manifest["fixed_sha256"]) == 64
    data = again.context.testing.data
    assert data is not None
    for tier in (0, 1):
        read = tier_model(config, data, run.folder.version(1), tier)
        assert (order_of(read) == ORDER).all()
    setup = ModelSetup(again.context.spec, again.context.channel_map, again.model.fixed, data)
    tested = ModelBench(setup).answer(EvaluationJob(run.folder.model(1), {0: SubModelSpec()}))
    here = again.model.network.test(again.model.state.params, SubModelSpec(), data)
    assert tested.found[0].loss == pytest.approx(here.loss)
    again.suspend()


def test_a_run_starts_from_a_model_with_its_state_and_from_none_without(tmp_path: Path) -> None:
    first = bench_of(tmp_path / "first", "Ordered")
    first.coordinator.suspend()
    with_order(first.folder.path, ORDER)
    words = [f"model.name={NAME}:Ordered", "data.source=digits"]
    config = load_config("fedavg", [*words, f"from={first.folder.path}", "seed=4"])
    folder = RunFolder.create(tmp_path / "second", config)
    second = assemble(config, "run-2", folder, first=find_initial_model(config, []))
    second.suspend()
    assert (second.model.fixed["order"] == ORDER).all()
    assert (folder.read_fixed()["order"] == ORDER).all()
    (first.folder.version(0) / FIXED_STATE).unlink()
    third = RunFolder.create(tmp_path / "third", config)
    with pytest.raises(ConfigError, match=r"lacks 'order', which the network draws when it is built"):
        assemble(config, "run-3", third, first=find_initial_model(config, []))


@pytest.mark.parametrize("deliver", [False, True])
def test_a_device_that_does_not_know_them_is_left_out_with_the_reason(
    deliver: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = bench_of(tmp_path, "Ordered")
    weak, strong = run.devices
    run.devices = (replace(weak, can=ALL - {Capability.TAKES_FIXED}), strong)
    with caplog.at_level(logging.WARNING):
        assert run.tasks(1, 1, deliver=deliver).keys() == {"strong"}
        run.tasks(1, 2, deliver=deliver)
    (line,) = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    planned = run.coordinator.planner.plan(
        PlanRound(1, 3, (replace(weak, can=ALL - {Capability.TAKES_FIXED}),))
    )
    assert planned.left_out == (
        "weak: its edge-federation is too old for a network that draws 'order': update it"
    )
    assert line == (
        "weak is left out: its edge-federation is too old for a network that draws 'order': update it"
    )


def test_other_networks_have_no_such_blob_and_take_any_device(tmp_path: Path) -> None:
    run = bench_of(tmp_path, "Positions")
    run.devices = tuple(replace(device, can=ALL - {Capability.TAKES_FIXED}) for device in run.devices)
    assert all("fixed" not in task.blobs for task in run.tasks(1, 1).values())
    assert len(run.tasks(1, 2)) == 2
    assert not (run.folder.version(0) / FIXED_STATE).exists()


def test_the_blob_is_sent_once_and_made_again_if_it_is_lost(tmp_path: Path) -> None:
    run = bench_of(tmp_path, "Ordered")
    refs = [task.blobs["fixed"] for number in (1, 2) for task in run.tasks(number, number).values()]
    assert len({ref.digest for ref in refs}) == 1
    tasks = list(run.tasks(3, 3).values())
    store = run.coordinator.storage.store
    store.blob_path(refs[0].digest).unlink()
    assert run.coordinator.repair.repair([refs[0].digest], tasks) == frozenset()
    assert refs[0].digest in store


def test_a_run_ends_as_soon_as_its_network_is_known_not_to_become_onnx(tmp_path: Path) -> None:
    run = bench_of(tmp_path, "Positions")
    early: EarlyGraphs = run.coordinator.early_graphs
    early.refused = "ONNX has no operator for it"
    with pytest.raises(ConfigError) as ended:
        run.tasks(1, 1)
    assert str(ended.value) == (
        f"[model] name: '{NAME}:Positions' cannot become an ONNX file, which devices and tiers get: "
        "ONNX has no operator for it"
    )
