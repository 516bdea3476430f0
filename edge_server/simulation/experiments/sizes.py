"""Parameters and MACs of every tier's sub-model, without training (ATTENDING, table 4)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import fmean

from torch import nn

from edge_client.models import build, registry
from edge_client.pruning.channel_graph.trace import trace_channels
from edge_client.pruning.channel_selection import group_ratios, prefix_spec
from edge_client.pruning.surgery import compact, count_macs, parameter_count
from edge_server.config.config import Config
from edge_server.config.test_data import load_test_data, model_spec
from edge_server.simulation.experiments.cells import Cell, Plan
from edge_server.simulation.experiments.experiment import PaperNumbers
from edge_server.simulation.experiments.findings import Findings, Table, without_empty
from schemas.submodel import ChannelMap
from schemas.values import ModelSpec

MEAN = "Average"
_PerLayer = tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Size:
    """The size of a sub-model: its parameters, and its multiply-accumulates per example and forward pass."""

    parameters: float
    macs: float


def tier_sizes(config: Config) -> list[Size]:
    """The size of every tier's sub-model, the weakest first, with the run's input shape and classes."""
    stated = config.model.input_shape is not None and config.num_classes is not None
    spec = model_spec(config, None if stated else load_test_data(config))
    shape, classes = spec.input_shape, spec.num_classes
    ratios = [tuple(r.items()) if isinstance(r, Mapping) else r for r in config.tiers.ratios]
    multiple = config.tiers.keep_multiple
    return [_size(config.model.name, shape, classes, ratio, multiple) for ratio in ratios]


def mean_parameters(config: Config) -> float:
    return fmean(size.parameters for size in tier_sizes(config))


@lru_cache(maxsize=64)
def _size(name: str, shape: tuple[int, ...], classes: int, ratio: float | _PerLayer, multiple: int) -> Size:
    module, channel_map = _network(name, shape, classes)
    ratios = dict(ratio) if isinstance(ratio, tuple) else ratio
    rounding = replace(registry.entry(name), multiple=multiple)
    spec = prefix_spec(group_ratios(rounding, ratios, channel_map), channel_map)
    smaller = compact(module, spec, channel_map)
    return Size(parameter_count(smaller), count_macs(smaller, shape))


@lru_cache(maxsize=4)
def _network(name: str, shape: tuple[int, ...], classes: int) -> tuple[nn.Module, ChannelMap]:
    """The full network, which takes longer than a sub-model of it."""
    module = build.build_model(ModelSpec(name=name, input_shape=shape, num_classes=classes))
    return module, trace_channels(module, shape)


def find_sizes(plan: Plan) -> Findings:
    sizes = {(cell.row, cell.column): _mean(tier_sizes(cell.config())) for cell in plan.cells}
    columns = list(dict.fromkeys(cell.column for cell in plan.cells))
    tables = [
        _table(column, [cell for cell in plan.cells if cell.column == column], sizes) for column in columns
    ]
    records = tuple(
        {"row": cell.row, "column": cell.column, **_record(sizes[cell.row, cell.column], cell.paper)}
        for cell in plan.cells
    )
    return Findings(tuple(tables), records, {"cells": list(records)}, notes=plan.notes)


def _table(column: str, cells: Sequence[Cell], sizes: Mapping[tuple[str, str], Size]) -> Table:
    own = [sizes[cell.row, column] for cell in cells]
    papers = [cell.paper or PaperNumbers() for cell in cells]
    rows = [_row(cell.row, size, paper) for cell, size, paper in zip(cells, own, papers, strict=True)]
    heads = ("", "parameters", "paper (M)", "MACs (M)", "paper FLOPs (M)", "paper FLOPs / MACs")
    return without_empty(Table(column, heads, (*rows, _row(MEAN, _mean(own), _mean_paper(papers)))))


def _row(name: str, size: Size, paper: PaperNumbers) -> tuple[str, ...]:
    ratio = f"{paper.flops * 1e6 / size.macs:.3f}" if paper.flops else ""
    return (
        name,
        f"{size.parameters:,.0f}",
        "" if paper.parameters is None else f"{paper.parameters:.2f}",
        f"{size.macs / 1e6:.2f}",
        "" if paper.flops is None else f"{paper.flops:.2f}",
        ratio,
    )


def _record(size: Size, paper: PaperNumbers | None) -> dict[str, float | None]:
    return {
        "parameters": size.parameters,
        "macs": size.macs,
        "paper_parameters_m": paper.parameters if paper else None,
        "paper_flops_m": paper.flops if paper else None,
    }


def _mean(sizes: Sequence[Size]) -> Size:
    return Size(fmean(size.parameters for size in sizes), fmean(size.macs for size in sizes))


def _mean_paper(papers: Sequence[PaperNumbers]) -> PaperNumbers:
    parameters = [paper.parameters for paper in papers if paper.parameters is not None]
    flops = [paper.flops for paper in papers if paper.flops is not None]
    return PaperNumbers(
        parameters=round(fmean(parameters), 3) if parameters else None,
        flops=round(fmean(flops), 3) if flops else None,
    )
