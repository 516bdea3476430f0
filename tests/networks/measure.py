"""What the product makes of one network: its channels, its cut, its exported files."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from edge_client.inference.export.filled import make_probes
from edge_client.inference.export.graph_export import draw_graph
from edge_client.inference.export.metadata import ExportRefused
from edge_client.inference.export.onnx import export_onnx
from edge_client.models.build import build_model
from edge_client.models.registry import entry
from edge_client.pruning.channel_graph.trace import trace
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.surgery import compact, count_macs, parameter_count
from edge_client.training.evaluation import logits
from schemas.errors import ConfigError
from schemas.values import ModelSpec, Preprocessing

HALF = 0.5
MEASURING = 8  # examples that normalisations measure


@dataclass(frozen=True)
class Measured:
    """A row of the table; figures of the whole network, and as shares of it of the one cut by a half.

    `differences` are those of the exported files from torch, whole and cut, relative to the largest output.
    `stops` are the operations at which channels stay whole, `problem` is why a figure is missing.
    """

    name: str
    release: str
    side: int
    parameters: int = 0
    macs: int = 0
    groups: int = 0
    left: float = 1.0
    macs_left: float = 1.0
    differences: tuple[float, ...] = ()
    stops: tuple[str, ...] = ()
    problem: str = ""


def measure(name: str, side: int, classes: int, *, export: bool = True) -> Measured:
    """Build, trace, cut and export a network for pictures of `side` x `side` pixels and three colours."""
    library = name.partition(":")[0]
    row, shape = Measured(name, f"{library} {version(library)}", side), (3, side, side)
    try:
        module = build_model(ModelSpec(name=name, input_shape=shape, num_classes=classes)).eval()
        traced = trace(module, shape)
    except ConfigError as error:
        return replace(row, problem=str(error))
    channel_map = traced.channel_map
    _measure_statistics(module, shape)
    smaller = compact(
        module, prefix_spec(group_ratios(entry(name), HALF, channel_map), channel_map), channel_map
    )
    row = replace(
        row,
        parameters=parameter_count(module),
        macs=count_macs(module, shape),
        groups=len(channel_map.groups),
        left=parameter_count(smaller) / parameter_count(module),
        macs_left=count_macs(smaller, shape) / count_macs(module, shape),
        stops=tuple(dict.fromkeys(stop.kind for stop in traced.stops)),
    )
    if not export:
        return row
    try:
        return replace(row, differences=_export((module, smaller), shape))
    except ExportRefused as error:
        return replace(row, problem=str(error))


def _measure_statistics(module: nn.Module, shape: tuple[int, ...]) -> None:
    """Give batch normalisations the statistics of noise: drawn networks may answer with zeros without."""
    normalisations = [part for part in module.modules() if isinstance(part, _BatchNorm)]
    momenta = [part.momentum for part in normalisations]
    for part in normalisations:
        part.momentum = 1.0
        part.train()
    with torch.no_grad():
        module(torch.randn(MEASURING, *shape, generator=torch.Generator().manual_seed(0)))
    for part, momentum in zip(normalisations, momenta, strict=True):
        part.momentum = momentum
    module.eval()


def _export(modules: Sequence[nn.Module], shape: tuple[int, ...]) -> tuple[float, ...]:
    """The relative differences of files of one graph, drawn from the first module."""
    graph = draw_graph(modules[0], shape)
    probes = make_probes(shape, Preprocessing(), None)
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        for module in modules:
            report = export_onnx(
                module,
                Path(folder) / "model.onnx",
                input_shape=shape,
                preprocessing=Preprocessing(),
                provenance={},
                graphs=[graph],
            )
            largest = max(float(np.abs(logits(module, inputs)).max()) for inputs in probes)
            differences.append(report.max_difference / largest)
    return tuple(differences)
