"""Inputs on which an export is tried, and the outputs that onnxruntime computes for them."""

from collections.abc import Sequence

import numpy as np
import onnxruntime

from edge_client.data.dataset import Inputs, Pixels, preprocess
from edge_client.inference.export.metadata import ExportRefused
from edge_client.models.graphs import checks, filling, sessions
from schemas.values import Preprocessing

# A single example, whose axis a `squeeze` loses; the number with which a graph is drawn; another one.
BATCHES = (1, 2, 7)


def make_probes(
    input_shape: tuple[int, ...], preprocessing: Preprocessing, sample: Pixels | None
) -> list[Inputs]:
    """Inputs at the batch sizes `BATCHES`: random ones, and the sample's."""
    given = [np.random.default_rng(0).standard_normal((max(BATCHES), *input_shape), dtype=np.float32)]
    if sample is not None and len(sample):
        inputs = preprocess(sample, preprocessing)
        given.append(inputs[np.arange(max(BATCHES)) % len(inputs)])
    return [inputs[:count] for inputs in given for count in BATCHES]


def run_model(data: bytes, probes: Sequence[Inputs]) -> list[Inputs]:
    """The outputs [N, classes] of an ONNX model for each of the inputs [N, C, H, W].

    Raises `ExportRefused` if onnxruntime cannot run it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = sessions.open_on_processor(data, options)
        return [session.run([filling.OUTPUT], {filling.INPUT: inputs})[0] for inputs in probes]
    except Exception as error:  # onnxruntime's share no other base class
        raise ExportRefused(f"onnxruntime cannot run the export: {checks.first_line(error)}") from error
