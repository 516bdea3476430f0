"""The scaling of examples is inside an exported file, in every form, and is done once."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import nn

from edge_client.data.dataset import LabelledData, make_labelled_data, preprocess, raw_examples
from edge_client.inference.export.filled import export_filled
from edge_client.inference.export.graph_export import draw_graph, weights_of
from edge_client.inference.export.graph_export import fill as fill_graph
from edge_client.inference.export.metadata import SCALING, describe
from edge_client.inference.export.onnx import export_onnx
from edge_client.inference.onnx_model import LoadedModel, load_model
from edge_client.inference.quantization.quantize import half, quantise_model
from edge_client.training.evaluation import logits
from schemas.values import ModelSpec, Preprocessing
from tests.once import made_once

SHAPE = (3, 8, 8)
ABOUT = Preprocessing(mean=(0.4, 0.5, 0.6), std=(0.2, 0.25, 0.3), class_names=("a", "b"))


def network() -> nn.Module:
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 2)]
    return nn.Sequential(*layers).eval()


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    def draw(folder: Path) -> None:
        (folder / "graph").write_bytes(draw_graph(network(), SHAPE))

    return (made_once(tmp_path_factory, "scaling", draw) / "graph").read_bytes()


@pytest.fixture
def pictures() -> LabelledData:
    random = np.random.default_rng(1)
    images = random.integers(0, 256, (40, *SHAPE), dtype=np.uint8)
    return make_labelled_data(images, random.integers(0, 2, 40), class_names=("a", "b"), preprocessing=ABOUT)


@pytest.fixture
def model(graph: bytes, tmp_path: Path) -> LoadedModel:
    path = tmp_path / "model.onnx"
    export_onnx(network(), path, input_shape=SHAPE, preprocessing=ABOUT, provenance={}, graphs=[graph])
    return load_model(path, threads=1)


def test_the_file_takes_pixels_and_computes_what_torch_does_of_inputs(
    model: LoadedModel, pictures: LabelledData
) -> None:
    expected = logits(network(), pictures.inputs())
    (name,) = (value.name for value in model.session.get_inputs())
    (raw,) = model.session.run(None, {name: pictures.images.astype(np.float32)})
    np.testing.assert_allclose(raw, expected, atol=1e-5)
    np.testing.assert_allclose(model.logits(pictures.images), expected, atol=1e-5)
    assert model.preprocessing == ABOUT


def test_a_reader_of_earlier_days_does_not_scale_twice(model: LoadedModel, pictures: LabelledData) -> None:
    stated = Preprocessing.model_validate(json.loads(model.metadata["preprocessing"]))
    np.testing.assert_array_equal(preprocess(pictures.images, stated), pictures.images.astype(np.float32))
    assert json.loads(model.metadata[SCALING]) == {
        "scale": 255.0,
        "mean": [0.4, 0.5, 0.6],
        "std": [0.2, 0.25, 0.3],
    }


def test_a_file_of_earlier_days_is_scaled_before_it_runs(
    graph: bytes, tmp_path: Path, pictures: LabelledData
) -> None:
    message = fill_graph(graph, network(), SHAPE)
    describe(message, input_shape=SHAPE, preprocessing=ABOUT, provenance={})
    path = tmp_path / "earlier.onnx"
    path.write_bytes(message.SerializeToString())
    earlier = load_model(path, threads=1)
    assert not earlier.scales
    np.testing.assert_allclose(
        earlier.logits(pictures.images), logits(network(), pictures.inputs()), atol=1e-5
    )


def test_a_device_without_torch_writes_the_same_bytes(
    graph: bytes, tmp_path: Path, model: LoadedModel
) -> None:
    arrays = {name: tensor.numpy() for name, tensor in weights_of(network()).items()}
    spec = ModelSpec(name="mlp", input_shape=SHAPE, num_classes=2)
    path = tmp_path / "filled.onnx"
    export_filled(graph, arrays, path, model=spec, preprocessing=ABOUT, provenance={})
    assert path.read_bytes() == model.path.read_bytes()


@pytest.mark.parametrize("kind", ["fp16", "int8"])
def test_a_smaller_form_scales_in_32_bits(kind: str, model: LoadedModel, pictures: LabelledData) -> None:
    data, metadata = model.path.read_bytes(), dict(model.metadata)
    made = (
        half(data, metadata)
        if kind == "fp16"
        else quantise_model(data, model.feed(pictures.images), metadata)
    )
    small = load_model(model.path, threads=1, data=made)
    difference = small.logits(pictures.images) - logits(network(), pictures.inputs())
    assert np.abs(difference).max() < (0.005 if kind == "fp16" else 0.05)
    # Brightness of 16 bits is beyond what 16-bit floats hold.
    taken = {node.op_type for node in onnx.load_from_string(made).graph.node if "input" in node.input}
    assert taken == {"Div"}


def test_scaling_that_changes_nothing_adds_nothing(graph: bytes, tmp_path: Path) -> None:
    path = tmp_path / "plain.onnx"
    plain = Preprocessing(scale=1.0)
    export_onnx(network(), path, input_shape=SHAPE, preprocessing=plain, provenance={}, graphs=[graph])
    assert onnx.load(path).graph.node[0].op_type == "Conv"
    assert load_model(path, threads=1).scales


def test_raw_examples_become_the_inputs() -> None:
    inputs = np.random.default_rng(0).standard_normal((2, *SHAPE), dtype=np.float32)
    np.testing.assert_allclose(preprocess(raw_examples(inputs, ABOUT), ABOUT), inputs, atol=1e-5)
