"""A trained network as one ONNX file for a board to serve: checked, compared with torch, put in place.

Its graph is one that came with the task or was drawn here before, as long as it computes what torch does;
only else is it drawn by torch's exporter, which takes a hundred times as long as all the rest.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from torch import nn

from edge_client.data.dataset import Inputs, Pixels, preprocess
from edge_client.inference.export.graph_cache import keep_graph, known_graphs
from edge_client.inference.export.weights import (
    INPUT,
    MAX_GRAPH_BYTES,
    OPSET,
    OUTPUT,
    ExportRefused,
    fill,
    first_line,
)
from edge_client.storage.atomic_files import write_synced
from edge_client.training.evaluation import logits
from schemas.values import Preprocessing

__all__ = ["MAX_GRAPH_BYTES", "OPSET", "ExportRefused", "ExportReport", "export_onnx", "find_graph"]

log = logging.getLogger(__name__)

IR_VERSION = 8
"""The file format that came with opset 18, so that onnxruntime 1.17 reads the file too."""
TOLERANCE = 1e-4
"""Largest difference from torch: absolute up to outputs of 1, relative above, as float32 has but 7 digits."""


@dataclass(frozen=True)
class ExportReport:
    """The file as written: its sha256 in hex, its size, and how far it differs from torch at most."""

    path: Path
    sha256: str
    bytes: int
    max_difference: float
    opset: int


def export_onnx(
    module: nn.Module,
    path: Path,
    *,
    input_shape: tuple[int, ...],
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
    sample: Pixels | None = None,
    graphs: Iterable[bytes] = (),
) -> ExportReport:
    """Write `module` to `path` with a free batch axis and all it takes to use it in its metadata.

    `input_shape` is [C, H, W], `sample` raw images [N, C, H, W] to compare on besides random ones; keys of
    `provenance` get the prefix `fl.`. `graphs` are tried before any other. Raises `ExportRefused`, and then
    leaves `path` as it was.
    """
    describe = partial(_describe, input_shape=input_shape, preprocessing=preprocessing, provenance=provenance)
    made = _first_that_computes(
        module, input_shape, graphs, describe=describe, probes=_probes(input_shape, preprocessing, sample)
    )
    write_synced(path, made.data)
    digest = hashlib.sha256(made.data).hexdigest()
    return ExportReport(path, digest, len(made.data), made.difference, OPSET)


def find_graph(module: nn.Module, input_shape: tuple[int, ...], graphs: Iterable[bytes] = ()) -> bytes:
    """The first graph that computes what `module` does: of `graphs`, of those drawn here, or a new one.

    Raises `ExportRefused`.
    """
    probes = _probes(input_shape, Preprocessing(), None)
    return _first_that_computes(module, input_shape, graphs, describe=lambda _: None, probes=probes).graph


@dataclass(frozen=True)
class _Made:
    """A model that computes what torch does, and the graph that it was made of."""

    graph: bytes
    data: bytes
    difference: float


def _first_that_computes(
    module: nn.Module,
    input_shape: tuple[int, ...],
    graphs: Iterable[bytes],
    *,
    describe: Callable[[onnx.ModelProto], None],
    probes: Sequence[Inputs],
) -> _Made:
    expected = [logits(module, inputs) for inputs in probes]
    if not all(np.isfinite(one).all() for one in expected):
        raise ExportRefused("the export differs from torch by nan: torch itself computes no numbers")
    for graph in chain(graphs, _from_shelf(module, input_shape)):
        try:
            _check_size(graph)
            # Small outputs are no excuse for a graph of something else.
            return _made(graph, module, input_shape, describe, probes, expected, least=0.0)
        except ExportRefused as error:
            log.info("a graph is not used: %s", error)
    # Imported here: with a given graph the exporter is not needed, and it takes half a minute to load.
    from edge_client.inference.export.graph_export import draw

    log.info("drawing the graph of %s, which takes a while", type(module).__name__)
    made = _made(draw(module, input_shape), module, input_shape, describe, probes, expected)
    keep_graph(module, input_shape, made.graph)
    return made


def _check_size(graph: bytes) -> None:
    if len(graph) > MAX_GRAPH_BYTES:
        raise ExportRefused(f"it has {len(graph)} bytes, at most {MAX_GRAPH_BYTES} are read")


def _from_shelf(module: nn.Module, input_shape: tuple[int, ...]) -> Iterator[bytes]:
    """As `known_graphs`, which are looked for only where nothing better was given."""
    yield from known_graphs(module, input_shape)


def _made(
    graph: bytes,
    module: nn.Module,
    input_shape: tuple[int, ...],
    describe: Callable[[onnx.ModelProto], None],
    probes: Sequence[Inputs],
    expected: Sequence[Inputs],
    least: float = 1.0,
) -> _Made:
    """Raises `ExportRefused`; outputs that are smaller than `least` need only be as exact as those."""
    model = fill(graph, module, input_shape)
    describe(model)
    data = model.SerializeToString(deterministic=True)
    try:
        onnx.checker.check_model(data, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportRefused(f"the export is not valid ONNX: {first_line(error)}") from error
    difference, allowed = _compare(data, probes, expected, least)
    if not difference <= allowed:
        raise ExportRefused(
            f"the export differs from torch by {difference:.3g}, at most {allowed:.3g} is allowed"
        )
    return _Made(graph, data, difference)


def _describe(
    model: onnx.ModelProto,
    *,
    input_shape: tuple[int, ...],
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
) -> None:
    """Set the metadata; drop any that a graph has brought."""
    model.ir_version = IR_VERSION
    model.doc_string = ""
    graph = model.graph
    for part in (graph, *graph.node, *graph.input, *graph.output, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    metadata = {key if key.startswith("fl.") else f"fl.{key}": value for key, value in provenance.items()}
    metadata["input.shape"] = json.dumps(list(input_shape))
    metadata["preprocessing"] = preprocessing.model_dump_json(exclude={"class_names"})
    metadata["class_names"] = json.dumps(list(preprocessing.class_names))
    onnx.helper.set_model_props(model, dict(sorted(metadata.items())))


def _probes(
    input_shape: tuple[int, ...], preprocessing: Preprocessing, sample: Pixels | None
) -> list[Inputs]:
    """Inputs to compare on, at batch sizes 1 and 3: random ones, and the sample's."""
    noise = np.random.default_rng(0).standard_normal((3, *input_shape), dtype=np.float32)
    if sample is None or len(sample) == 0:
        return [noise[:1], noise]
    inputs = preprocess(sample, preprocessing)
    return [noise[:1], noise, inputs[:1], inputs[np.arange(3) % len(inputs)]]


def _compare(
    data: bytes, probes: Sequence[Inputs], expected: Sequence[Inputs], least: float
) -> tuple[float, float]:
    """Largest absolute difference of outputs, NaN when ONNX computes one, and the largest allowed."""
    try:
        computed = _run(data, probes)
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ExportRefused(f"onnxruntime cannot run the export: {first_line(error)}") from error
    if any(one.shape != two.shape for one, two in zip(computed, expected, strict=True)):
        raise ExportRefused("the export gives outputs of another shape than torch")
    difference = np.max([np.abs(one - two).max() for one, two in zip(computed, expected, strict=True)])
    largest = np.max([np.abs(one).max() for one in expected])
    return float(difference), TOLERANCE * max(least, float(largest))


def _run(data: bytes, probes: Sequence[Inputs]) -> list[Inputs]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [session.run([OUTPUT], {INPUT: inputs})[0] for inputs in probes]
