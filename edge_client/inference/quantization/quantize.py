"""Makes variants of an export: 16-bit floats, and 8-bit integers (onnxruntime's static quantisation).

Needs `onnx`: import it late.
"""

import contextlib
import json
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.onnx_model import ONNXModel
from onnxruntime.transformers.float16 import convert_float_to_float16

from edge_client.data.dataset import Inputs
from edge_client.models.graphs import boxes, filling, portable
from edge_client.system.hardware.processor import saturates_bytes

CALIBRATION_EXAMPLES = 128
CALIBRATION_BATCH = 16  # examples per batch; calibration keeps all activations of a batch in memory
# Metadata by which the quantiser knows that batch norms are folded already.
_PREPARED = {"onnx.quant.pre_process": "onnxruntime.quant"}


def half(data: bytes, metadata: Mapping[str, str]) -> bytes:
    """The model in `data` with 16-bit floats inside and float32 at both ends; with its metadata."""
    model = onnx.load_from_string(data)
    has_boxes = boxes.drop_boxes(model)
    scaling = _take_scaling(model.graph)
    converted = ONNXModel(convert_float_to_float16(model, keep_io_types=True))
    if scaling.node:
        graph = converted.model.graph
        graph.input[0].name = filling.INPUT
        graph.node.extend(scaling.node)
        graph.initializer.extend(scaling.initializer)
    # Without sorting, the casts of inputs stand at the end, which only onnxruntime accepts.
    converted.topological_sort()
    return _written(converted.model, metadata, has_boxes=has_boxes)


def _take_scaling(graph: onnx.GraphProto) -> onnx.GraphProto:
    """Take out what scales raw examples, which may be larger than 16 bits hold, or have more digits."""
    scaling = onnx.GraphProto(node=[node for node in graph.node if node.name in portable.SCALED])
    constants = {name for node in scaling.node for name in node.input}
    for part, taken in (("node", {*portable.SCALED}), ("initializer", constants)):
        each = getattr(graph, part)
        kept = [type(one).FromString(one.SerializeToString()) for one in each if one.name not in taken]
        if part == "initializer":
            scaling.initializer.extend(one for one in each if one.name in taken)
        del each[:]
        each.extend(kept)
    if scaling.node:
        graph.input[0].name = scaling.node[-1].output[0]
    return scaling


def quantise_model(data: bytes, inputs: Inputs, metadata: Mapping[str, str]) -> bytes:
    """The model in `data` with 8-bit weights, a scale per channel, and 8-bit activations.

    The ranges of activations are measured on `inputs` [N, C, H, W], as the model takes them; with `metadata`.
    """
    model = onnx.load_from_string(data)
    has_boxes = boxes.drop_boxes(model)
    onnx.helper.set_model_props(model, _PREPARED)
    with tempfile.TemporaryDirectory(prefix="edge-variants-") as folder, _quiet():
        source, target = Path(folder) / "source.onnx", Path(folder) / "target.onnx"
        onnx.save(model, str(source))
        quantize_static(
            str(source),
            str(target),
            Batches(model.graph.input[0].name, inputs),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            # Weights of 7 bits, whose products fit.
            reduce_range=saturates_bytes(),
            # Unsigned activations are faster on x86, and as fast on Arm.
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[
                *before_logarithms(model),
                *portable.SCALED,
                *(behind_layers(model) if has_boxes else ()),
            ],
        )
        return _written(onnx.load(str(target)), metadata, has_boxes=has_boxes)


def before_logarithms(model: onnx.ModelProto) -> list[str]:
    """The names of the nodes that lead to a logarithm, that included: small values decide there."""
    makers = {output: node for node in model.graph.node for output in node.output}
    names: set[str] = set()
    waiting = [node for node in model.graph.node if node.op_type == "Log"]
    while waiting:
        node = waiting.pop()
        if node.name not in names:
            names.add(node.name)
            waiting += [makers[name] for name in node.input if name in makers]
    return sorted(names)


def behind_layers(model: onnx.ModelProto) -> list[str]:
    """The names of the nodes behind the last layers: 8 bits do not hold a corner's place in a picture."""
    layers = ("Conv", "Gemm", "MatMul")
    names, ahead = list[str](), set[str]()
    for node in reversed(model.graph.node):
        if node.op_type in layers or ahead.intersection(node.output):
            ahead.update(node.input)
        else:
            names.append(node.name)
    return sorted(names)


class Batches(CalibrationDataReader):  # type: ignore[misc]
    """Inputs [N, C, H, W] as the quantiser reads them: batch after batch, None at the end."""

    def __init__(self, name: str, inputs: Inputs) -> None:
        starts = range(0, len(inputs), CALIBRATION_BATCH)
        self._batches = iter([{name: inputs[start : start + CALIBRATION_BATCH]} for start in starts])

    def get_next(self) -> dict[str, Any] | None:
        return next(self._batches, None)


def _written(model: onnx.ModelProto, metadata: Mapping[str, str], *, has_boxes: bool) -> bytes:
    """The bytes of a model with exactly this metadata, which gives boxes if it is to."""
    if has_boxes:
        boxes.give_boxes(model, tuple(json.loads(metadata["input.shape"])))
    del model.metadata_props[:]
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))
    data: bytes = model.SerializeToString(deterministic=True)
    return data


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Drop what the quantiser logs on the root logger; errors are still raised."""
    root = logging.getLogger()

    def not_the_quantisers(record: logging.LogRecord) -> bool:
        return "onnxruntime" not in record.pathname

    root.addFilter(not_the_quantisers)
    try:
        yield
    finally:
        root.removeFilter(not_the_quantisers)
