"""A training run does not replace a device's better model, unless the configuration forces it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge_client.inference.installed_model import served_model_path, slots
from edge_client.inference.onnx_model import load_model
from edge_client.transport.broker_link import BrokerAddress
from edge_server.cli.demo import device_name
from edge_server.coordinator.launch import serve
from edge_server.releases.registry.registry import Registry
from edge_server.storage.event_list import read_events
from edge_server.storage.records import Summary
from edge_server.storage.run_folder import RunFolder
from tests.integration import device_threads
from tests.integration.bench import NAMES, Bench
from tests.integration.conftest import ONE_BROKER, Watched, demo_config

DEVICES = [device_name(index) for index in range(2)]
BAD = {"rounds": 1, "learning-rate": 1e-5}
Train = Callable[..., Summary]


@pytest.fixture
def train(address: BrokerAddress, tmp_path: Path) -> Train:
    """Return a function that runs a whole run over two devices, which keep their state between runs."""

    def run(name: str, **words: Any) -> Summary:
        fixed = {"clients.num-clients": 2, "tiers.ratios": "[0.5, 0.0]", "partition": "iid", "alpha": 0.5}
        fixed |= {"model.name": "mlp"}
        config = demo_config(**{**fixed, "local-epochs": 4, "learning-rate": 0.003, **words})
        with device_threads.devices(config, address, tmp_path / "devices"):
            return serve(config, address, Watched(), out=tmp_path / name, registry=tmp_path / "registry")

    return run


def serving(folder: Path) -> dict[str, tuple[str, bytes]]:
    """The run of each device's served model, and the bytes of that file in `models/`."""
    found = {}
    for name in DEVICES:
        path, current = (
            served_model_path(folder / "devices" / name / "models"),
            slots(folder / "devices" / name / "models").current(),
        )
        assert current is not None
        assert path.read_bytes() == current.read()
        found[name] = load_model(path).provenance["run_id"], path.read_bytes()
    return found


@ONE_BROKER
def test_a_bad_run_replaces_no_good_model_of_a_device(train: Train, tmp_path: Path) -> None:
    good = train("good", rounds=3, **{"personalise-epochs": 1, "simulation.hold-out": 0.2})
    assert all(found.personalisation and found.personalisation.epochs == 1 for found in good.devices)
    before = serving(tmp_path)
    assert {run for run, _ in before.values()} == {good.run}
    assert all((device.onnx_accuracy or 0) > 0.7 for device in good.devices)

    bad = train("bad", **BAD)
    assert bad.outcome == "finished"
    assert serving(tmp_path) == before
    for device in bad.devices:
        verdict = device.verdict
        assert verdict is not None
        assert (device.serves_new, verdict.earlier) == (False, f"{good.run} round 3")
        assert (verdict.accuracy or 0) < 0.5 < 0.7 < (verdict.earlier_accuracy or 0)
    events = [row.event for row in read_events(RunFolder(tmp_path / "bad").events, kinds=["delivery"])]
    log = [event.text for event in events if event.subject == "earlier model kept"]
    assert len(log) == 2
    assert "accuracy: " in log[0]
    assert "earlier" in (tmp_path / "bad" / "report.md").read_text()
    assert [tier.devices_serving for tier in Registry(tmp_path / "registry").version("bad").tiers] == [0, 0]

    # Nothing is delivered: the server exports the models, for inspection and a later rollout.
    none = train("none", **BAD, deliver="none")
    assert serving(tmp_path) == before
    assert sorted(none.onnx) == [1, 2]
    version = Registry(tmp_path / "registry").version("none")
    assert [(tier.tier, tier.devices, tier.devices_serving) for tier in version.tiers] == [
        (1, 0, None),
        (2, 0, None),
    ]

    force = train("force", **BAD, deliver="force")
    assert {run for run, _ in serving(tmp_path).values()} == {force.run}
    assert all(device.serves_new for device in force.devices)


@pytest.mark.parametrize(("deliver", "compared"), [("trial", True), ("force", False)])
def test_the_task_states_whether_the_model_is_compared(tmp_path: Path, deliver: str, compared: bool) -> None:
    bench = Bench(tmp_path, "fedavg", "model.name=mlp", f"deliver={deliver}")
    tasks = bench.tasks(1, 1, deliver=True)
    assert [tasks[name].trial is not None for name in NAMES] == [compared] * 2
    assert all(task.trial is None for task in bench.tasks(1, 2).values())
