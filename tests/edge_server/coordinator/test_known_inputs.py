"""A run takes the inputs that its weights know from their record, and keeps them to its end."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edge_client.models.build import build_model
from edge_client.models.registry import InputRecord
from edge_server.config.config import Config
from edge_server.config.load import differences, load_config
from edge_server.config.test_data import OF_IMAGENET
from edge_server.coordinator import known_inputs
from edge_server.coordinator.initial_model import find_initial_model
from edge_server.coordinator.known_inputs import with_known_inputs
from edge_server.coordinator.pretrained.sources import inputs_of_file
from edge_server.simulation.inputs import as_simulated
from edge_server.simulation.simulator import simulate
from edge_server.storage.run_folder import RunFolder
from schemas.values import ModelSpec, Preprocessing, Resizing
from tests.edge_client.inference.test_onnx_model import write_model
from tests.edge_server.coordinator.test_initial_model import Nobody, begun
from tests.edge_server.simulation.in_process import in_process

RECORD = InputRecord((6, 6), (0.5, 0.4, 0.3), (0.2, 0.2, 0.1), 0.5, "bicubic")
STATED = (
    *("data.mean=[0.5, 0.4, 0.3]", "data.std=[0.2, 0.2, 0.1]", "data.crop=0.5", "data.interpolation=bicubic"),
    "model.input-shape=[3,6,6]",
)


def coloured_pictures() -> tuple[np.ndarray, np.ndarray]:
    """A data source of sixteen pictures of 12x10 pixels in two classes."""
    labels = np.arange(16) % 2
    noise = np.random.default_rng(0).integers(0, 50, (16, 3, 12, 10))
    return (noise + 150 * labels[:, None, None, None]).astype(np.uint8), labels


def file(*words: str) -> Config:
    fixed = ("model.name=mlp", "num-clients=2", "rounds=1", "workers=1", "tiers.ratios=[0.0]")
    return load_config("fedavg", [*fixed, f"data.source=python:{__name__}:coloured_pictures", *words])


@in_process()
def test_a_run_that_starts_from_a_run_sees_pictures_as_that_did(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    simulate(file(*STATED), out=first, watcher=Nobody(), export=False)
    told: list[str] = []
    asked = file(f"from={first}")
    simulate(asked, out=second, watcher=Nobody(), export=False, notify=told.extend)
    kept = load_config(str(second / "federation.toml"))
    for key in ("mean", "std", "crop", "interpolation"):
        assert getattr(kept.data, key) == getattr(file(*STATED).data, key)
    assert kept.model.input_shape == (3, 6, 6)
    seen = "the network sees the middle 50 % of a picture's side as 3x6x6 (bicubic)"
    assert any(line.startswith(seen) for line in told)
    # What the run has taken itself is no difference, and it goes on with that.
    asked = as_simulated(asked)
    assert list(differences(second / "federation.toml", asked)) == []
    assert with_known_inputs(asked, [], second).data == kept.data
    other = as_simulated(file(f"from={first}", "data.crop=none"))
    assert [key for key, *_ in differences(second / "federation.toml", other)] == ["data.crop"]


@in_process()
def test_a_run_of_before_leaves_the_inputs_to_the_source(tmp_path: Path) -> None:
    simulate(file(), out=tmp_path / "first", watcher=Nobody(), export=False)
    asked = file(f"from={tmp_path / 'first'}")
    assert with_known_inputs(asked, [], tmp_path / "second") == asked


def test_a_library_states_the_inputs_of_its_weights_without_reading_them() -> None:
    weights = "torchvision:mobilenet_v3_small"
    config = with_known_inputs(file(f"model.name={weights}", f"from={weights}"), [])
    assert config.model.input_shape == (3, 224, 224)
    assert config.data.mean == (0.485, 0.456, 0.406)
    assert (config.data.crop, config.data.interpolation) == (0.875, "bilinear")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A state dict of the network for pictures of 6x6 pixels."""
    module = build_model(ModelSpec(name="mlp", input_shape=(3, 6, 6), num_classes=2), seed=9)
    torch.save(module.state_dict(), tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_a_file_of_weights_is_warned_of_unless_somebody_states_the_scale(
    weights: Path, tmp_path: Path
) -> None:
    warned = []
    for number, words in enumerate(((), STATED)):
        config = file(f"from={weights}", *(words or STATED[2:]))
        run = begun(config, tmp_path / str(number), find_initial_model(config, []))
        run.storage.close()
        warned.append([line for line in run.model.notices if OF_IMAGENET in line])
    assert len(warned[0]) == 1
    assert warned[0][0].startswith(f"'{weights}' does not say how the inputs of its weights were scaled")
    assert warned[1] == []


def test_a_file_of_weights_for_a_librarys_network_has_the_inputs_that_the_library_states(
    weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_inputs, "input_record", {"timm:lcnet_050": RECORD}.get)
    config = with_known_inputs(file(f"from={weights}", "model.name=timm:lcnet_050"), [])
    assert (config.data.mean, config.data.crop) == (RECORD.mean, 0.5)
    assert with_known_inputs(file(f"from={weights}"), []) == file(f"from={weights}")


def test_a_run_that_is_restarted_goes_on_with_what_it_took(tmp_path: Path) -> None:
    weights = "torchvision:mobilenet_v3_small"
    asked = file(f"model.name={weights}", f"from={weights}", "data.resize=32")
    RunFolder.create(tmp_path / "run", with_known_inputs(asked, []))
    again = with_known_inputs(asked, [], tmp_path / "run")
    assert again == with_known_inputs(asked, [])
    assert again.model.input_shape is None


def test_an_exported_file_states_the_inputs_of_its_run(tmp_path: Path) -> None:
    about = Preprocessing(mean=(0.5,), std=(0.25,), resizing=Resizing(crop=0.5, interpolation="bicubic"))
    stated = {
        "preprocessing": about.model_dump_json(exclude={"class_names"}),
        "input.shape": json.dumps([3, 4, 6]),
    }
    path = write_model(tmp_path / "tier-1.onnx", shape=(3, 4, 6), metadata=stated)
    assert inputs_of_file(path) == InputRecord((4, 6), (0.5,) * 3, (0.25,) * 3, 0.5, "bicubic")
    assert inputs_of_file(write_model(tmp_path / "other.onnx", shape=(3, 4, 6), metadata={})) is None
    path.write_bytes(b"no protobuf")
    assert inputs_of_file(path) is None


OF_TIMM = {
    "input_size": [3, 6, 6],
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.2, 0.1],
    "crop_pct": 0.5,
    "interpolation": "bicubic",
}


@pytest.mark.parametrize(
    ("beside", "record"),
    [
        ({"pretrained_cfg": OF_TIMM}, RECORD),
        ({"pretrained_cfg": {**OF_TIMM, "mean": [0.5, 0.4]}}, None),
        ({"pretrained_cfg": {**OF_TIMM, "input_size": [3, "six", 6]}}, None),
        ({"pretrained_cfg": {**OF_TIMM, "std": [0, 0, 0]}}, None),
        ({"pretrained_cfg": None}, None),
        ([], None),
        (None, None),
    ],
)
def test_what_timms_hub_puts_beside_weights_states_their_inputs(
    beside: object, record: InputRecord | None, weights: Path
) -> None:
    if beside is not None:
        weights.with_name("config.json").write_text(json.dumps(beside))
    assert inputs_of_file(weights) == record
