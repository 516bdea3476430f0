"""Inputs on which an export is tried, and the outputs that onnxruntime computes for them."""

from collections.abc import Sequence

import numpy as np
import onnxruntime

from edge_client.data.dataset import Inputs, Pixels, preprocess
from edge_client.inference.export.refusal import ExportRefused
from edge_client.models.graphs.checks import first_line
from edge_client.models.graphs.filling import INPUT, OUTPUT
from schemas.values import Preprocessing


def make_probes(
    input_shape: tuple[int, ...], preprocessing: Preprocessing, sample: Pixels | None
) -> list[Inputs]:
    """Inputs at batch sizes 1 and 3: random ones, and the sample's."""
    noise = np.random.default_rng(0).standard_normal((3, *input_shape), dtype=np.float32)
    if sample is None or len(sample) == 0:
        return [noise[:1], noise]
    inputs = preprocess(sample, preprocessing)
    return [noise[:1], noise, inputs[:1], inputs[np.arange(3) % len(inputs)]]


def run_model(data: bytes, probes: Sequence[Inputs]) -> list[Inputs]:
    """The outputs [N, classes] of an ONNX model for each of the inputs [N, C, H, W].

    Raises `ExportRefused` if onnxruntime cannot run it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        return [session.run([OUTPUT], {INPUT: inputs})[0] for inputs in probes]
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ExportRefused(f"onnxruntime cannot run the export: {first_line(error)}") from error
