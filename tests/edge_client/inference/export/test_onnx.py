"""Export: one self-contained file that computes what torch computes, or a refusal."""

import hashlib
import logging
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor, nn

from edge_client.data.sources import load_source
from edge_client.inference.export import onnx as export
from edge_client.inference.export.onnx import OPSET, ExportRefused, ExportReport, export_onnx
from edge_client.inference.onnx_model import load_model
from edge_client.training.evaluation import evaluate, logits
from edge_client.training.loop import train
from schemas.strategy import TrainingPlan
from schemas.values import Preprocessing

PROVENANCE = {
    "run_id": "run-1",
    "round": "3",
    "fl.tier": "1",
    "prune_ratio": "0.7",
    "parent_sha256": "ab" * 32,
}


@pytest.fixture(scope="module")
def module() -> nn.Module:
    """A small network with the common layer types, trained for one round."""
    torch.manual_seed(0)
    net = nn.Sequential(
        *[nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)],
        *[nn.Flatten(), nn.Dropout(0.5), nn.Linear(128, 10)],
    )
    train(net, load_source("digits"), TrainingPlan(optimizer="adam", learning_rate=0.01))
    return net


@pytest.fixture(scope="module")
def report(module: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> ExportReport:
    data = load_source("digits", split="test")
    return export_onnx(
        module,
        tmp_path_factory.mktemp("onnx") / "models" / "tier-1.onnx",
        input_shape=data.input_shape,
        preprocessing=data.preprocessing,
        provenance=PROVENANCE,
        sample=data.images[:2],
    )


def test_the_report_describes_the_file(report: ExportReport) -> None:
    data = report.path.read_bytes()
    assert report.sha256 == hashlib.sha256(data).hexdigest()
    assert report.bytes == len(data)
    assert 0 <= report.max_difference < 1e-4
    assert [path.name for path in report.path.parent.iterdir()] == ["tier-1.onnx"]


def test_the_file_is_valid_and_self_contained(report: ExportReport) -> None:
    model = onnx.load(report.path, load_external_data=False)
    onnx.checker.check_model(model, full_check=True)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", OPSET)]
    assert all(not weight.external_data for weight in model.graph.initializer)
    batch = model.graph.input[0].type.tensor_type.shape.dim[0]
    assert batch.dim_param == "batch"
    assert not any(node.metadata_props or node.doc_string for node in model.graph.node)
    # The file is little more than its weights: 8*9 + 8 + 10*128 + 10 numbers after folding the normalisation.
    assert report.bytes < 4 * 1370 + 2500


def test_the_file_contains_no_paths_of_this_machine(report: ExportReport) -> None:
    data = report.path.read_bytes()
    assert str(Path(torch.__file__).parents[1]).encode() not in data
    assert str(Path(__file__).parent).encode() not in data


def test_the_file_contains_its_metadata(report: ExportReport) -> None:
    model = load_model(report.path)
    data = load_source("digits")
    assert model.input_shape == (1, 8, 8)
    assert model.preprocessing == data.preprocessing
    assert model.preprocessing.class_names == data.class_names
    assert model.provenance == {key.removeprefix("fl."): value for key, value in PROVENANCE.items()}


def test_torch_and_onnx_agree_on_every_example(module: nn.Module, report: ExportReport) -> None:
    data = load_source("digits", split="test")
    model = load_model(report.path)
    np.testing.assert_allclose(model.logits(data.images), logits(module, data.inputs()), atol=1e-4)
    accuracy = model.accuracy(data.images, data.labels)
    assert accuracy == pytest.approx(evaluate(module, data).accuracy)
    assert accuracy is not None
    assert accuracy > 0.8


def test_equal_networks_give_equal_bytes_quietly(
    module: nn.Module, report: ExportReport, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    module.train()
    again = export_onnx(
        module,
        tmp_path / "again.onnx",
        input_shape=(1, 8, 8),
        preprocessing=load_source("digits").preprocessing,
        provenance=PROVENANCE,
    )
    assert again.sha256 == report.sha256
    assert capfd.readouterr() == ("", "")
    assert module.training
    assert logging.getLogger("onnxscript").level == logging.NOTSET


def refuse(module: nn.Module, path: Path) -> str:
    """Export to an existing file and return the message of the refusal."""
    path.write_bytes(b"the last good model")
    with pytest.raises(ExportRefused) as caught:
        export_onnx(module, path, input_shape=(1, 8, 8), preprocessing=Preprocessing(), provenance={})
    assert path.read_bytes() == b"the last good model"
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    return str(caught.value)


def test_diverged_weights_are_refused(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    nn.init.constant_(module[1].weight, float("nan"))
    assert "differs from torch by nan" in refuse(module, tmp_path / "model.onnx")


def test_differences_are_judged_by_the_size_of_outputs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    nn.init.zeros_(module[1].weight)

    def shifted(data: bytes, probes: list[np.ndarray]) -> list[np.ndarray]:
        # Off by ten times the tolerance.
        return [logits(module, inputs) + 1e-3 for inputs in probes]

    monkeypatch.setattr(export, "run_model", shifted)
    nn.init.constant_(module[1].bias, 1.0)
    assert "differs from torch by 0.001, at most 0.0001 is allowed" in refuse(module, tmp_path / "model.onnx")
    nn.init.constant_(module[1].bias, 100.0)
    report = export_onnx(
        module, tmp_path / "model.onnx", input_shape=(1, 8, 8), preprocessing=Preprocessing(), provenance={}
    )
    assert report.max_difference == pytest.approx(1e-3, rel=0.05)


def test_a_network_that_amplifies_rounding_may_differ_by_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The outputs are small differences of large numbers.
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 10))
    nn.init.constant_(module[1].weight, 1e3)
    with torch.no_grad():
        module[2].weight[:] = torch.tensor([1.0, -1.0]).repeat(32)

    def shifted(data: bytes, probes: list[np.ndarray]) -> list[np.ndarray]:
        return [logits(module, inputs) + off for inputs in probes]

    monkeypatch.setattr(export, "run_model", shifted)
    off = 1e-3
    export_onnx(
        module, tmp_path / "model.onnx", input_shape=(1, 8, 8), preprocessing=Preprocessing(), provenance={}
    )
    off = 1e3
    assert "differs from torch by 1e+03" in refuse(module, tmp_path / "model.onnx")


def test_networks_that_cannot_be_exported_are_refused(tmp_path: Path) -> None:
    class Branching(nn.Module):
        def forward(self, inputs: Tensor) -> Tensor:
            return inputs if inputs.sum().item() > 0 else -inputs

    message = refuse(Branching(), tmp_path / "model.onnx")
    assert message.startswith("torch cannot export Branching")
    assert "\n" not in message
