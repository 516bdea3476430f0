"""A step graph in double precision, by the operators' definitions (`onnx.reference`) instead of onnxruntime.

In float32 rounding decides whether a unit whose input is nearly 0 has a gradient; in double precision a graph
differs from torch only if its formula does. Convolutions and pools, which have no fast definition in numpy,
are torch's.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun
from torch import Tensor
from torch.nn import functional

from edge_client.training.step_graphs import names

Array = NDArray[Any]
KINDS = (("gradients", names.GRADIENT), ("buffers", names.NEXT), ("observed", names.OBSERVED))
FLOAT, DOUBLE = int(TensorProto.FLOAT), int(TensorProto.DOUBLE)


class DoubleSession:
    """A `StepSession` in 64 bits; `given` and the outputs are arrays by name."""

    def __init__(
        self, data: bytes, given: Mapping[str, Array], *, threads: int = 0, place: object = None
    ) -> None:
        self._evaluator = ReferenceEvaluator(
            _in_double(data), new_ops=[Conv, ConvTranspose, MaxPool, Pad, ScatterElements]
        )
        self._given = given
        self.gradients: dict[str, Array] = {}
        self.buffers: dict[str, Array] = {}
        self.observed: dict[str, Array] = {}

    def run(self, batch: Mapping[str, Array]) -> float:
        """Run on a batch; returns its mean loss."""
        given = {**self._given, **batch}
        values = {name: _doubled(given[name]) for name in self._evaluator.input_names}
        with np.errstate(all="ignore"):
            results = self._evaluator.run(None, values)
        outputs = dict(zip(self._evaluator.output_names, results, strict=True))
        for kind, prefix in KINDS:
            found = {n.removeprefix(prefix): np.array(a) for n, a in outputs.items() if n.startswith(prefix)}
            getattr(self, kind).update(found)
        return float(outputs[names.LOSS])


class Conv(OpRun):
    """A convolution with equal pads on both sides."""

    op_domain = ""
    transposed = False

    def _run(self, x: Array, weight: Array, bias: Array | None = None, **options: Any) -> tuple[Array]:
        bias_tensor = None if bias is None else _tensor(bias)
        result = torch.convolution(
            *(_tensor(x), _tensor(weight), bias_tensor),
            **_window(options, weight.ndim - 2),
            groups=options["group"],
            transposed=self.transposed,
            output_padding=options.get("output_padding") or [0] * (weight.ndim - 2),
        )
        return (result.numpy(),)


class ConvTranspose(Conv):
    """A transposed convolution with equal pads on both sides."""

    transposed = True


class MaxPool(OpRun):
    """A maximum pool of maps with equal pads on both sides; its indices count through the whole tensor."""

    op_domain = ""

    def _run(self, x: Array, **options: Any) -> tuple[Array, Array]:
        window = _window(options, x.ndim - 2)
        result, places = functional.max_pool2d(
            *(_tensor(x), options["kernel_shape"]), **window, ceil_mode=False, return_indices=True
        )
        maps = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], 1, 1)
        return result.numpy(), places.numpy() + maps * int(np.prod(x.shape[2:]))


class Pad(OpRun):
    """A constant around an array; negative pads cut it, which onnx's own reference refuses."""

    op_domain = ""

    def _run(
        self, x: Array, pads: Array, constant: Array | None = None, axes: Array | None = None, **options: Any
    ) -> tuple[Array]:
        assert options.get("mode") in (None, "constant"), options
        around = np.zeros((x.ndim, 2), np.int64)
        around[slice(None) if axes is None else axes] = np.reshape(pads, (2, -1)).T
        last_first = [int(size) for size in around[::-1].reshape(-1)]
        value = 0.0 if constant is None else float(np.reshape(constant, -1)[0])
        return (functional.pad(_tensor(x), last_first, value=value).numpy(),)


class ScatterElements(OpRun):
    """Values that replace or add to those of an array."""

    op_domain = ""

    def _run(self, data: Array, places: Array, values: Array, **options: Any) -> tuple[Array]:
        axis, reduction = options["axis"], options["reduction"]
        given = _tensor(data), axis, _tensor(places), _tensor(values)
        assert reduction in ("none", "add"), reduction
        return ((torch.scatter_add if reduction == "add" else torch.scatter)(*given).numpy(),)


def _window(options: Mapping[str, Any], axes: int) -> dict[str, Sequence[int]]:
    pads = list(options.get("pads") or [0] * 2 * axes)
    assert pads[:axes] == pads[axes:], pads
    return {
        "stride": list(options.get("strides") or [1] * axes),
        "padding": pads[:axes],
        "dilation": list(options.get("dilations") or [1] * axes),
    }


def _in_double(data: bytes) -> onnx.ModelProto:
    """The graph with double in place of float."""
    model = onnx.load_from_string(data)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(_doubled_tensor(tensor))
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        if value.type.tensor_type.elem_type == FLOAT:
            value.type.tensor_type.elem_type = DOUBLE
    for node in model.graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = DOUBLE
            elif attribute.type == onnx.AttributeProto.TENSOR:
                attribute.t.CopyFrom(_doubled_tensor(attribute.t))
    return model


def _doubled_tensor(tensor: TensorProto) -> TensorProto:
    return numpy_helper.from_array(_doubled(numpy_helper.to_array(tensor)), tensor.name)


def _doubled(array: Array) -> Array:
    return array.astype(np.float64) if array.dtype == np.float32 else array


def _tensor(array: Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(array))
