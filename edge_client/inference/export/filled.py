"""Exports a trained network without torch and onnx: its graph is given, and filled with its arrays.

The file has the same bytes as that of `onnx.export_onnx` for the same graph. Nothing is compared with torch:
the graph's outputs are only tried for their shape and for being finite.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

from edge_client.data.dataset import Inputs, Pixels, raw_examples
from edge_client.data.tasks.registry import learning_task
from edge_client.inference.export.metadata import ExportRefused, finish
from edge_client.models.graphs import checks, costs, filling
from edge_client.storage.atomic_files import write_synced
from schemas.values import ModelSpec, Preprocessing

# Inputs on which an export is tried, and the outputs that onnxruntime computes for them.

# A single example, whose axis a `squeeze` loses; the number with which a graph is drawn; another one.
BATCHES = (1, 2, 7)


def make_probes(
    input_shape: tuple[int, ...], preprocessing: Preprocessing, sample: Pixels | None
) -> list[Inputs]:
    """Raw examples at the batch sizes `BATCHES`: normal ones once they are scaled, and the sample's."""
    noise = np.random.default_rng(0).standard_normal((max(BATCHES), *input_shape), dtype=np.float32)
    given = [raw_examples(noise, preprocessing)]
    if sample is not None and len(sample):
        given.append(sample[np.arange(max(BATCHES)) % len(sample)].astype(np.float32))
    return [raw[:count] for raw in given for count in BATCHES]


def run_model(data: bytes, probes: Sequence[Inputs]) -> list[Inputs]:
    """The outputs [N, classes] of an ONNX model for each of what it takes [N, C, H, W].

    Raises `ExportRefused` if onnxruntime cannot run it.
    """
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = filling.open_on_processor(data, options)
        return [session.run([filling.OUTPUT], {filling.INPUT: inputs})[0] for inputs in probes]
    except Exception as error:  # onnxruntime's share no other base class
        raise ExportRefused(f"onnxruntime cannot run the export: {checks.first_line(error)}") from error


@dataclass(frozen=True)
class FilledReport:
    """The written file: its sha256 in hex, its size in bytes, and what the network costs."""

    path: Path
    sha256: str
    bytes: int
    parameters: int
    macs: int


def export_filled(
    graph: bytes,
    arrays: filling.Weights,
    path: Path,
    *,
    model: ModelSpec,
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
    sample: Pixels | None = None,
) -> FilledReport:
    """Write the network of `graph` with these arrays to `path`, as `onnx.export_onnx` does.

    `sample` are raw images [N, C, H, W], on which the file is tried besides random ones. Raises
    `ExportRefused` and then does not change `path`.
    """
    shape = model.input_shape
    try:
        filled = filling.fill(graph, arrays, shape)
        parameters, macs = costs.parameter_count(graph, arrays, shape), costs.count_macs(filled, shape)
        finish(filled, input_shape=shape, preprocessing=preprocessing, provenance=provenance, task=model.task)
    except checks.GraphRefused as error:
        raise ExportRefused(f"the network cannot be exported without torch: {error}") from error
    data = filled.SerializeToString(deterministic=True)
    del filled
    for outputs in run_model(data, make_probes(shape, preprocessing, sample)):
        if outputs.shape[1:] != (learning_task(model.task).width(model.num_classes, shape),):
            given = list(outputs.shape[1:])
            raise ExportRefused(f"the export gives outputs of {given}, not {model.num_classes} classes")
        if not np.isfinite(outputs).all():
            raise ExportRefused("the export computes no numbers but nan")
    write_synced(path, data)
    return FilledReport(path, hashlib.sha256(data).hexdigest(), len(data), parameters, macs)
