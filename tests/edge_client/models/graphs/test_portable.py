"""The forms that other runtimes read: which operators stay, and that the numbers are the same."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from edge_client.inference.export.graph_export import draw_graph, fill
from edge_client.models.graphs.checks import ModelProto
from edge_client.models.graphs.portable import attribute_of, make_portable
from edge_client.models.registry import MODELS
from edge_client.models.speech_cnn import LogMel
from tests.edge_client.models.graphs.networks import graph, network, spec_of
from tests.edge_client.networks import Net
from tests.slow import mark_slow, slow

REWRITTEN = ("cnn-group", "mobilenet-v2-quarter", "speech-cnn", "tcn", "vit-tiny")
UNCHANGED = sorted({*MODELS} - {*REWRITTEN, "mobilenet-v2", "resnet20-group", "resnet56"})
SLOW = ("mobilenet-v2-quarter", "resnet20")


def complete(module: nn.Module, drawn: bytes, shape: tuple[int, ...]) -> tuple[bytes, Any]:
    """A model as it is filled, and in its portable form."""
    model = fill(drawn, module, shape)
    before = bytes(model.SerializeToString())
    make_portable(model, shape)
    onnx.checker.check_model(model.SerializeToString(), full_check=True)
    return before, model


def outputs(data: bytes, inputs: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"input": inputs})[0])


def operators(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("name", [slow(name) if name in SLOW else name for name in REWRITTEN])
def test_a_rewritten_network_computes_the_same_at_any_batch(name: str) -> None:
    shape = spec_of(name).input_shape
    before, model = complete(network(name), graph(name), shape)
    after = model.SerializeToString()
    assert after != before
    for batch in (1, 5):
        inputs = np.random.default_rng(batch).standard_normal((batch, *shape), dtype=np.float32)
        np.testing.assert_allclose(outputs(after, inputs), outputs(before, inputs), rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", [slow(name) if name in SLOW else name for name in UNCHANGED])
def test_another_network_stays_as_it_is(name: str) -> None:
    before, model = complete(network(name), graph(name), spec_of(name).input_shape)
    assert model == ModelProto.FromString(before)


def test_group_normalisation_takes_no_shape_from_a_value() -> None:
    _, model = complete(network("cnn-group"), graph("cnn-group"), spec_of("cnn-group").input_shape)
    assert "InstanceNormalization" in operators(model)
    assert "Shape" not in operators(model)


def test_a_causal_convolution_has_its_padding_before_it() -> None:
    _, model = complete(network("tcn"), graph("tcn"), spec_of("tcn").input_shape)
    assert operators(model).count("Pad") == 4
    pads = [list(attribute_of(node, "pads").ints) for node in model.graph.node if node.op_type == "Conv"]
    assert pads == [[0, 0]] * 5


def test_a_transformer_halves_last_and_takes_no_mean_over_tokens() -> None:
    _, model = complete(network("vit-tiny"), graph("vit-tiny"), spec_of("vit-tiny").input_shape)
    assert "ReduceMean" not in operators(model)
    makers = {node.output[0]: node for node in model.graph.node}
    users = {value: node for node in model.graph.node for value in node.input}
    for erf in (node for node in model.graph.node if node.op_type == "Erf"):
        one_more = users[erf.output[0]]
        product = users[one_more.output[0]]
        halved = users[product.output[0]]
        assert [each.op_type for each in (one_more, product, halved)] == ["Add", "Mul", "Mul"]
        # The other factor is the layer of which the error function is taken.
        (layer,) = {*product.input} - {one_more.output[0]}
        assert layer in makers[erf.input[0]].input


def test_spectra_become_pictures_by_a_constant_shape() -> None:
    _, model = complete(network("speech-cnn"), graph("speech-cnn"), spec_of("speech-cnn").input_shape)
    assert "Unsqueeze" not in operators(model)


def test_one_pixel_has_no_mean_and_meets_the_centre_of_a_depth_wise_kernel_alone() -> None:
    layers = [nn.Conv2d(3, 3, 3, stride=stride, padding=1, groups=3) for stride in (2, 1)]
    module, shape = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2)), (3, 2, 2)
    before, model = complete(module.eval(), draw_graph(module, shape), shape)
    assert operators(ModelProto.FromString(before)) == ["Conv", "Conv", "ReduceMean", "Reshape", "Gemm"]
    assert operators(model) == ["Conv", "Conv", "Reshape", "Gemm"]
    assert kernels(model) == [(3, 3), (1, 1)]
    inputs = np.random.default_rng(0).standard_normal((5, *shape), dtype=np.float32)
    after = outputs(model.SerializeToString(), inputs)
    np.testing.assert_allclose(after, outputs(before, inputs), rtol=0, atol=1e-6)


def kernels(model: Any) -> list[tuple[int, ...]]:
    """The sizes of depth-wise kernels."""
    return [
        tuple(attribute_of(node, "kernel_shape").ints)
        for node in model.graph.node
        if node.op_type == "Conv" and attribute_of(node, "group").i > 1
    ]


@mark_slow
def test_depth_wise_kernels_of_mobilenet_are_cut_in_its_last_blocks() -> None:
    name = "mobilenet-v2-quarter"
    before, model = complete(network(name), graph(name), spec_of(name).input_shape)
    # At 32 pixels the last three blocks have one pixel, and the one before them makes it of two.
    assert kernels(model) == [(3, 3)] * 14 + [(1, 1)] * 3
    assert len(model.SerializeToString()) < len(before) - 16_000


@mark_slow
def test_the_one_pixel_of_mobilenet_has_no_mean() -> None:
    name = "mobilenet-v2-quarter"
    before, model = complete(network(name), graph(name), spec_of(name).input_shape)
    assert operators(ModelProto.FromString(before))[-4:] == ["Clip", "ReduceMean", "Reshape", "Gemm"]
    assert operators(model)[-3:] == ["Clip", "Reshape", "Gemm"]


def test_a_shape_whose_rows_are_not_first_stays_as_it_is() -> None:
    def forward(net: Any, x: Tensor) -> Any:
        """Normalise [C, N, L] by groups of rows, as networks do that have time first."""
        turned = x.transpose(0, 1)
        return net.head((turned.reshape(turned.shape) + 1).transpose(0, 1).flatten(1))

    module = Net(forward, norm=nn.GroupNorm(2, 4), head=nn.Linear(24, 2)).eval()
    before, model = complete(module, draw_graph(module, (4, 6)), (4, 6))
    inputs = np.ones((3, 4, 6), np.float32)
    np.testing.assert_array_equal(outputs(model.SerializeToString(), inputs), outputs(before, inputs))


def test_silence_has_the_same_spectra_whatever_the_noise_of_rounding() -> None:
    spectra = LogMel(4096)
    silence, noise = torch.zeros(1, 1, 4096), 1e-9 * torch.randn(1, 1, 4096)
    assert spectra(silence).abs().max() < 1e-4
    assert (spectra(silence) - spectra(noise)).abs().max() < 1e-4
    recording = torch.sin(torch.arange(4096) ** 2 / 4000)[None, None]
    assert spectra(recording).std() == pytest.approx(1, abs=1e-3)
