"""A trained network as one ONNX file for a board to serve: checked, compared with torch, put in place."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import nn

from edge_client.data.labelled import Inputs, Pixels, preprocess
from edge_client.evaluation import evaluating, logits
from edge_client.files import write_synced
from schemas.errors import EdgeError
from schemas.values import Preprocessing

OPSET = 18
"""The exporter's native opset: a lower one would be converted, a higher one runs on fewer runtimes."""
IR_VERSION = 8
"""The file format that came with opset 18, so that onnxruntime 1.17 reads the file too."""
TOLERANCE = 1e-4
"""Largest difference from torch: absolute up to outputs of 1, relative above, as float32 has but 7 digits."""
INPUT, OUTPUT = "input", "logits"


class ExportRefused(EdgeError):
    """The network cannot be exported, or its ONNX form does not compute the same; no file was written."""


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
) -> ExportReport:
    """Write `module` to `path` with a free batch axis and all it takes to use it in its metadata.

    `input_shape` is [C, H, W], `sample` raw images [N, C, H, W] to compare on besides random ones; keys of
    `provenance` get the prefix `fl.`. Raises `ExportRefused`, and then leaves `path` as it was.
    """
    model = _convert(module, input_shape)
    _describe(model, input_shape, preprocessing, provenance)
    data = model.SerializeToString(deterministic=True)
    try:
        onnx.checker.check_model(data, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportRefused(f"{path.name} is not valid ONNX: {_first_line(error)}") from error
    difference, allowed = _compare(module, data, _probes(input_shape, preprocessing, sample))
    if not difference <= allowed:
        raise ExportRefused(
            f"{path.name} differs from torch by {difference:.3g}, at most {allowed:.3g} is allowed"
        )
    write_synced(path, data)
    return ExportReport(path, hashlib.sha256(data).hexdigest(), len(data), difference, OPSET)


def _convert(module: nn.Module, input_shape: tuple[int, ...]) -> onnx.ModelProto:
    device = next((parameter.device for parameter in module.parameters()), torch.device("cpu"))
    try:
        with evaluating(module), _quiet():
            # Two examples, since torch.export takes an axis of one for a constant.
            program = torch.onnx.export(
                module,
                (torch.zeros(2, *input_shape, device=device),),
                dynamo=True,
                opset_version=OPSET,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=[INPUT],
                output_names=[OUTPUT],
                verbose=False,
            )
    except Exception as error:
        # The exporter raises whatever the user's own module raises, besides many classes of its own.
        raise ExportRefused(f"torch cannot export {type(module).__name__}: {_first_line(error)}") from error
    if program is None:
        raise ExportRefused(f"torch exported nothing for {type(module).__name__}")
    model: onnx.ModelProto = program.model_proto
    return model


def _describe(
    model: onnx.ModelProto,
    input_shape: tuple[int, ...],
    preprocessing: Preprocessing,
    provenance: Mapping[str, str],
) -> None:
    """Set the metadata; drop the exporter's own: it tells paths of this machine and doubles a small file."""
    model.ir_version = IR_VERSION
    graph = model.graph
    for part in (
        model,
        graph,
        *graph.node,
        *graph.input,
        *graph.output,
        *graph.value_info,
        *graph.initializer,
    ):
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


def _compare(module: nn.Module, data: bytes, probes: Sequence[Inputs]) -> tuple[float, float]:
    """Largest absolute difference of outputs, NaN when either computes one, and the largest allowed."""
    expected = [logits(module, inputs) for inputs in probes]
    try:
        computed = _run(data, probes)
    except Exception as error:
        # onnxruntime's exceptions share no base class but Exception.
        raise ExportRefused(f"onnxruntime cannot run the export: {_first_line(error)}") from error
    difference = np.max([np.abs(one - two).max() for one, two in zip(computed, expected, strict=True)])
    largest = np.max([np.abs(one).max() for one in expected])
    return float(difference), TOLERANCE * max(1.0, float(largest))


def _run(data: bytes, probes: Sequence[Inputs]) -> list[Inputs]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return [session.run([OUTPUT], {INPUT: inputs})[0] for inputs in probes]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's prints, warnings and log lines; what goes wrong is raised anyway."""
    loggers = [logging.getLogger(name) for name in ("torch", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__
