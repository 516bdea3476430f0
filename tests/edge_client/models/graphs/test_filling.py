"""Graphs filled with arrays, beside what torch counts and computes."""

import os
from collections.abc import Mapping

import numpy as np
import onnxruntime
import pytest
import torch

from edge_client.inference.export.graph_export import fill as fill_with_torch
from edge_client.inference.export.onnx import find_graph
from edge_client.models.graphs.checks import GraphRefused
from edge_client.models.graphs.costs import count_macs, parameter_count
from edge_client.models.graphs.filling import fill, open_features, open_graph
from edge_client.models.registry import MODELS
from edge_client.pruning import surgery
from schemas.tensors.arrays import ComputedArrays
from tests.edge_client.models.graphs.networks import graph, narrow, network, spec_of
from tests.slow import slow

ALL = os.environ.get("EVERY_NETWORK") == "1"
LARGER = ("mobilenet-v2", "resnet56", "resnet20-group")
"""Networks that only `make test-graphs` fills: a smaller one has the same builder and layers."""
SLOW = ("mobilenet-v2-quarter", "two-nn", "cnn", "cnn-group", "tcn", "resnet20", "vit-tiny")
"""Of `two-nn` and `cnn` all layers are in `cnn-batch`, of `tcn` in `cnn-1d`; the others take longest."""


@pytest.mark.parametrize(
    "name", [slow(name) if name in SLOW and not ALL else name for name in MODELS if ALL or name not in LARGER]
)
def test_a_shipped_network_is_filled_opened_and_counted_as_by_torch(name: str) -> None:
    shape = spec_of(name).input_shape
    for module in (network(name), narrow(network(name), shape)):
        # Group normalisation has fewer groups in a narrower network, whose graph is so another.
        drawn = find_graph(module, shape) if name.endswith("-group") else graph(name)
        arrays = surgery.arrays_of(module)
        filled = fill(drawn, arrays, shape)
        data = filled.SerializeToString(deterministic=True)
        assert data == fill_with_torch(drawn, module, shape).SerializeToString(deterministic=True)
        assert count_macs(filled, shape) == surgery.count_macs(module, shape)
        assert filled.SerializeToString(deterministic=True) == data
        assert parameter_count(drawn, arrays, shape) == surgery.parameter_count(module)
        inputs = np.random.default_rng(2).standard_normal((3, *shape), dtype=np.float32)
        with torch.no_grad():
            expected = module(torch.from_numpy(inputs)).numpy()
        (outputs,) = onnxruntime.InferenceSession(data).run(None, {"input": inputs})
        np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)
        given = outputs_of_opened(open_graph(drawn, arrays, shape), inputs, arrays)
        np.testing.assert_allclose(given, expected, rtol=1e-4, atol=1e-4)


def outputs_of_opened(data: bytes, inputs: np.ndarray, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    """The outputs of a graph that takes its weights as further inputs."""
    session = onnxruntime.InferenceSession(data)
    first, *weights = [value.name for value in session.get_inputs()]
    (outputs,) = session.run(None, {first: inputs, **{weight: arrays[weight] for weight in weights}})
    return outputs


def test_a_graph_gives_what_its_head_takes() -> None:
    module, shape = network("mlp"), spec_of("mlp").input_shape
    arrays, inputs = surgery.arrays_of(module), np.ones((3, *shape), np.float32)
    data, head = open_features(graph("mlp"), arrays, shape)
    features = outputs_of_opened(data, inputs, arrays)
    scores = features @ arrays[f"{head}.weight"].T + arrays[f"{head}.bias"]
    with torch.no_grad():
        np.testing.assert_allclose(scores, module(torch.from_numpy(inputs)).numpy(), rtol=1e-4, atol=1e-5)
    ending = torch.nn.Sequential(module, torch.nn.Softmax(1)).eval()
    with pytest.raises(GraphRefused, match="does not end in a linear layer"):
        open_features(find_graph(ending, shape), surgery.arrays_of(ending), shape)


def test_lazy_arrays_are_each_read_once() -> None:
    arrays = surgery.arrays_of(network("cnn"))
    read: list[str] = []

    def rows(name: str, start: int, stop: int) -> np.ndarray:
        read.append(name)
        return arrays[name][start:stop]

    lazy = ComputedArrays({name: (array.dtype, array.shape) for name, array in arrays.items()}, rows)
    fill(graph("cnn"), lazy, spec_of("cnn").input_shape)
    assert sorted(read) == sorted(arrays)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda arrays: arrays.pop(next(iter(arrays))), "which is not a weight"),
        (lambda arrays: arrays.update({n: a.astype(np.float64) for n, a in arrays.items()}), "another type"),
        (lambda arrays: arrays.update({n: a.astype(np.int8) for n, a in arrays.items()}), "another type"),
        (lambda arrays: arrays.update({n: a[..., :1] for n, a in arrays.items()}), "onnxruntime cannot run"),
        (lambda arrays: arrays.update(dict.fromkeys(arrays, np.zeros((), np.float32))), "onnxruntime cannot"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(change: object, why: str) -> None:
    arrays = dict(surgery.arrays_of(network("mlp")))
    change(arrays)  # type: ignore[operator]
    with pytest.raises(GraphRefused, match=why):
        fill(graph("mlp"), arrays, spec_of("mlp").input_shape)
