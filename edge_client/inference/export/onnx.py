"""Exports a trained network as one ONNX file: checked, compared with torch, and put in place.

The graph comes from the task or the cache if it computes what torch does. Only otherwise does torch's
exporter draw it, which takes a hundred times as long as all the rest.
"""

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from torch import nn

from edge_client.data.dataset import Inputs, Pixels, preprocess
from edge_client.data.tasks.registry import CLASSIFICATION
from edge_client.inference.export.filled import make_probes, run_model
from edge_client.inference.export.graph_export import fill, keep_graph, known_graphs
from edge_client.inference.export.metadata import ExportRefused, finish
from edge_client.models.graphs.checks import OPSET, ROUNDING, SENSITIVITY, GraphRefused, first_line
from edge_client.models.graphs.filling import MAX_GRAPH_BYTES
from edge_client.storage.atomic_files import write_synced
from edge_client.training.evaluation import logits
from schemas.values import Preprocessing

__all__ = ["MAX_GRAPH_BYTES", "OPSET", "ExportRefused", "ExportReport", "export_onnx", "find_graph"]

log = logging.getLogger(__name__)

TOLERANCE = 1e-4  # largest difference from torch: absolute for outputs up to 1, relative above


@dataclass(frozen=True)
class ExportReport:
    """The written file: its sha256 in hex, its size, and its largest difference from torch."""

    path: Path
    sha256: str
    bytes: int
    max_difference: float


def export_onnx(
    module: nn.Module,
    path: Path,
    *,
    input_shape: tuple[int, ...],
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
    sample: Pixels | None = None,
    graphs: Iterable[bytes] = (),
    task: str = CLASSIFICATION.name,
) -> ExportReport:
    """Write `module` to `path`, with a free batch axis and the metadata that a runtime needs.

    `input_shape` is [C, H, W]; `sample` are raw images [N, C, H, W] for the comparison, besides random ones.
    Keys of `provenance` get the prefix `fl.`. `graphs` are tried first. Raises `ExportRefused` and then does
    not change `path`.
    """
    finished = partial(
        finish, input_shape=input_shape, preprocessing=preprocessing, provenance=provenance, task=task
    )
    probes = make_probes(input_shape, preprocessing, sample)
    known = _Known.of(module, probes, [preprocess(raw, preprocessing) for raw in probes])
    made = _first_that_computes(module, input_shape, graphs, finished, known)
    write_synced(path, made.data)
    digest = hashlib.sha256(made.data).hexdigest()
    return ExportReport(path, digest, len(made.data), made.difference)


def find_graph(module: nn.Module, input_shape: tuple[int, ...], graphs: Iterable[bytes] = ()) -> bytes:
    """The first graph of `graphs`, the cache or the exporter that fits `module`; raises `ExportRefused`."""
    probes = make_probes(input_shape, Preprocessing(scale=1.0), None)
    known = _Known.of(module, probes, probes)
    return _first_that_computes(module, input_shape, graphs, lambda _: None, known).graph


@dataclass(frozen=True, eq=False)
class _Known:
    """The `outputs` of torch for `inputs`, which an export makes of `probes`."""

    probes: Sequence[Inputs]
    inputs: Sequence[Inputs]
    outputs: Sequence[Inputs]

    @classmethod
    def of(cls, module: nn.Module, probes: Sequence[Inputs], inputs: Sequence[Inputs]) -> "_Known":
        return cls(probes, inputs, [logits(module, each) for each in inputs])

    def effect_of_rounding(self, module: nn.Module) -> float:
        """The largest change of outputs where inputs differ by rounding: deep networks amplify it."""
        random = np.random.default_rng(1)
        moved = [
            logits(module, each + ROUNDING * each * random.standard_normal(each.shape, np.float32))
            for each in self.inputs
        ]
        return _largest_difference(moved, self.outputs)


@dataclass(frozen=True)
class _Made:
    """A model that computes what torch does, and its graph."""

    graph: bytes
    data: bytes
    difference: float


def _first_that_computes(
    module: nn.Module,
    input_shape: tuple[int, ...],
    graphs: Iterable[bytes],
    finish: Callable[[Any], None],
    known: _Known,
) -> _Made:
    """The first graph of `graphs`, the cache or the exporter whose model gives what is `known`."""
    if not all(np.isfinite(outputs).all() for outputs in known.outputs):
        raise ExportRefused("the export differs from torch by nan: torch itself computes no numbers")
    for graph in chain(graphs, known_graphs(module, input_shape)):
        try:
            if len(graph) > MAX_GRAPH_BYTES:
                raise ExportRefused(f"it has {len(graph)} bytes, at most {MAX_GRAPH_BYTES} are read")
            # Without a least size of 1, so that small outputs do not hide the graph of another network.
            return _fill_and_check(graph, module, input_shape, finish, known, least=0.0)
        except ExportRefused as error:
            log.info("a graph is not used: %s", error)
    # Imported here: the exporter takes half a minute to load and is not needed with a given graph.
    from edge_client.inference.export.graph_export import draw_graph

    log.info("drawing the graph of %s, which takes a while", type(module).__name__)
    made = _fill_and_check(draw_graph(module, input_shape), module, input_shape, finish, known)
    keep_graph(module, input_shape, made.graph)
    return made


def _fill_and_check(
    graph: bytes,
    module: nn.Module,
    input_shape: tuple[int, ...],
    finish: Callable[[Any], None],
    known: _Known,
    least: float = 1.0,
) -> _Made:
    """Fill and check a graph; the tolerance is relative to outputs of at least `least`."""
    model = fill(graph, module, input_shape)
    try:
        finish(model)
    except GraphRefused as error:
        raise ExportRefused(str(error)) from error
    data = model.SerializeToString(deterministic=True)
    try:
        onnx.checker.check_model(data, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportRefused(f"the export is not valid ONNX: {first_line(error)}") from error
    difference, allowed = _compare(data, known, least)
    if not difference <= allowed:
        allowed += SENSITIVITY * known.effect_of_rounding(module)
    if not difference <= allowed:
        limit = f"at most {allowed:.3g} is allowed"
        raise ExportRefused(f"the export differs from torch by {difference:.3g}, {limit}")
    return _Made(graph, data, difference)


def _compare(data: bytes, known: _Known, least: float) -> tuple[float, float]:
    """Largest absolute difference of outputs (NaN if ONNX computes one), and the largest allowed."""
    computed = run_model(data, known.probes)
    if any(a.shape != b.shape for a, b in zip(computed, known.outputs, strict=True)):
        raise ExportRefused("the export gives outputs of another shape than torch")
    largest = np.max([np.abs(outputs).max() for outputs in known.outputs])
    return _largest_difference(computed, known.outputs), TOLERANCE * max(least, float(largest))


def _largest_difference(ours: Sequence[Inputs], theirs: Sequence[Inputs]) -> float:
    return float(np.max([np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)]))
