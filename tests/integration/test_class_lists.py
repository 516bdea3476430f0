"""Devices whose folders have different classes use one class list, over a real broker."""

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from PIL import Image

from edge_client.agent.agent import Agent, AgentSettings
from edge_client.data.dataset import LabelledData
from edge_client.data.local import LocalData
from edge_client.data.partition import holdout
from edge_client.data.sources import load_source
from edge_client.inference.onnx_model import load_model
from edge_client.transport.broker_link import BrokerAddress
from edge_server.config.load import load_config
from edge_server.observability.dashboard.run_reader import newest_version
from edge_server.observability.device_totals import read_device_totals
from edge_server.storage.journal_reader import JournalReader
from schemas.values import CapabilityProfile
from tests.integration.conftest import ONE_BROKER
from tests.integration.device_threads import in_threads

DIGITS = load_source("digits")
ALL = tuple("0123456789")


def photos(root: Path, digits: str, *, part: int, names: dict[str, str] | None = None) -> Path:
    """A folder with a sub-folder of 40 images per digit; different parts share no image."""
    for digit in digits:
        own = (DIGITS.labels == int(digit)).nonzero()[0][part * 40 : part * 40 + 40]
        folder = root / (names or {}).get(digit, digit)
        folder.mkdir(parents=True)
        for number in own:
            Image.fromarray(DIGITS.images[number, 0] * 15).save(folder / f"{number}.png")
    return root


@contextmanager
def participating(address: BrokerAddress, state: Path, folders: dict[str, Path]) -> Iterator[None]:
    """One device per folder, in threads of this process, until the block or the run ends."""
    agents = [_agent(address, state / name, name, folder) for name, folder in folders.items()]
    with in_threads(agents):
        yield


def _agent(address: BrokerAddress, state: Path, name: str, folder: Path) -> Agent:
    state.mkdir(parents=True)
    source = f"folder:{folder}"
    settings = AgentSettings(
        *("test", name, address, state, source), CapabilityProfile(tier=5), once=True, threads=1
    )
    data: LabelledData = load_source(source)
    return Agent(settings, LocalData(*holdout(data, seed=0)))


def words(**more: object) -> list[str]:
    settings = {
        "federation.name": "test",
        "model.name": "mlp",
        "input-shape": [1, 8, 8],
        "optimizer": "adam",
        "learning-rate": 0.01,
        "batch-size": 16,
        "local-epochs": 3,
        "rejoin-s": 2.0,
        "deadline-s": 60.0,
        **more,
    }
    return [f"{key}={value}" for key, value in settings.items()]


@ONE_BROKER
def test_devices_with_different_classes_agree_on_one_list_and_train_one_model(
    address, serve, tmp_path
) -> None:
    folders = {
        "pi-1": photos(tmp_path / "1", "379", part=0),
        "pi-2": photos(tmp_path / "2", "0123456789", part=1),
        "pi-3": photos(tmp_path / "3", "012468", part=2),
        "pi-4": photos(tmp_path / "4", "579", part=2),
    }
    config = load_config("fedavg", words(**{"num-clients": 4, "num-classes": 10, "rounds": 5}))
    run = serve(config)
    with participating(address, tmp_path / "devices", folders):
        summary = run.finished()
    assert summary.outcome == "finished", summary.detail
    with closing(JournalReader(run.folder.journal)) as reader:
        assert reader.classes() == ALL
    test = load_source("digits", split="test")
    model = load_model(run.folder.onnx(1), threads=1)
    assert model.preprocessing.class_names == ALL
    # Pixels were written as 0 to 240. Without a common class list the accuracy is 59 %.
    accuracy = model.accuracy(test.images * 15, test.labels)
    assert accuracy is not None
    assert accuracy > 0.8
    for name in folders:
        served = load_model(tmp_path / "devices" / name / "models" / "model.onnx", threads=1)
        assert served.preprocessing.class_names == ALL
        assert (served.accuracy(test.images * 15, test.labels) or 0) > 0.8


@ONE_BROKER
def test_a_device_with_an_unknown_class_is_refused_by_both_sides_and_the_others_finish(
    address, serve, tmp_path, caplog: pytest.LogCaptureFixture
) -> None:
    folders = {
        "pi-1": photos(tmp_path / "1", "379", part=0),
        "pi-2": photos(tmp_path / "2", "37", part=1, names={"3": "three"}),
    }
    config = load_config("fedavg", words(**{"num-clients": 2, "data.classes": list(ALL), "rounds": 1}))
    run = serve(config)
    with caplog.at_level(logging.WARNING), participating(address, tmp_path / "devices", folders):
        summary = run.finished()
    assert summary.outcome == "finished", summary.detail
    refusals = [
        record.getMessage() for record in caplog.records if "unknown class 'three'" in record.getMessage()
    ]
    assert any(line.startswith("pi-2 is not chosen (incompatible)") for line in refusals)
    assert any(line.startswith("the server refuses (incompatible)") for line in refusals)
    assert all("'0', '1', '2'" in line and "'7', 'three' (2)" in line for line in refusals)
    totals = {device.device: device for device in read_device_totals(run.folder.path)}
    assert (totals["pi-1"].rounds, totals["pi-2"].rounds) == (1, 0)
    assert totals["pi-2"].refused == {"incompatible": 1}
    assert newest_version(run.folder) is not None
