"""Grad-CAM (Selvaraju et al. 2017) of the global models of several runs.

Equation 1: a channel's weight is the mean gradient of the class score over its map; equation 2: the heat is
the positive part of the weighted sum of the maps. ATTENDING shows it in figure 1.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edge_client.data import dataset, shapes, sources
from edge_client.models import build, fixed_state
from edge_client.pruning.surgery import load_arrays
from edge_client.training.evaluation import evaluate
from edge_server.config.test_data import model_spec, read_source
from edge_server.observability.grad_cam import Heat, concentration, grad_cam
from edge_server.simulation.experiments import cells
from edge_server.simulation.experiments.cells import EndedRun, run_path
from edge_server.simulation.experiments.findings import Findings, Table
from edge_server.simulation.experiments.runner import EndedRuns
from edge_server.storage.run_folder import read_fixed
from schemas.errors import ConfigError
from schemas.tensors.files import FileGroups

MEASURED = 200
SHOWN = 8


def find_grad_cam(plan: cells.Plan, outcome: EndedRuns, out: Path) -> Findings:
    """Compute Grad-CAM of the first seed's model of every row on the same test pictures."""
    failures = tuple(
        f"{finished.run.cell.row}: {finished.failure}" for finished in outcome.done if finished.failure
    )
    first = {finished.run.cell.row: finished for finished in reversed(outcome.done) if not finished.failure}
    models = {cell.row: first[cell.row] for cell in plan.cells if cell.row in first}
    if outcome.interrupted or not models:
        return Findings((), notes=plan.notes, failures=failures, interrupted=outcome.interrupted)
    data = _pictures(plan, MEASURED)
    modules = {row: _load_trained(model, out, data) for row, model in models.items()}
    inputs, classes = torch.from_numpy(data.inputs()), torch.from_numpy(data.labels)
    heats = {row: grad_cam(module, inputs, classes) for row, module in modules.items()}
    rows = {row: (evaluate(modules[row], data).accuracy or 0.0, concentration(heats[row])) for row in heats}
    _draw(data, heats, out / "grad-cam.png")
    table = Table(
        f"{len(data)} test pictures",
        ("", "accuracy on them (%)", "concentration"),
        tuple((row, f"{100 * accuracy:.1f}", f"{part:.3f}") for row, (accuracy, part) in rows.items()),
    )
    records: tuple[Mapping[str, Any], ...] = tuple(
        {"row": row, "accuracy": accuracy, "concentration": part} for row, (accuracy, part) in rows.items()
    )
    details = {"cells": list(records)}
    return Findings((table,), records, details, ("grad-cam.png",), plan.notes, failures)


def _pictures(plan: cells.Plan, count: int) -> dataset.LabelledData:
    """The first test pictures of each class in turn, so that all classes are shown."""
    config = plan.cells[0].config()
    data = read_source(config, sources.part_of(str(config.data.source), "test"), split="test")
    data = shapes.fit_data(data, model_spec(config, data).input_shape)
    turns = np.zeros(len(data), dtype=np.int64)
    for label in range(data.num_classes):
        own = np.flatnonzero(data.labels == label)
        turns[own] = np.arange(len(own))
    return data.subset(np.lexsort((data.labels, turns))[:count])


def _load_trained(done: EndedRun, out: Path, data: dataset.LabelledData) -> nn.Module:
    folder = run_path(done.run, out)
    versions = list((folder / "models").glob("round-*/state.safetensors"))
    if not versions:
        raise ConfigError(f"{folder} contains no model")
    latest = max(versions, key=lambda path: int(path.parent.name.split("-")[1]))
    module = build.build_model(model_spec(done.run.config, data))
    fixed_state.fill_fixed(module, read_fixed(latest.parent))
    load_arrays(module, FileGroups(latest)["model"])
    return module


def _draw(data: dataset.LabelledData, heats: Mapping[str, Heat], path: Path) -> None:
    from edge_server.simulation.experiments.plots import DPI, plt

    count = min(SHOWN, len(data))
    names = ["input", *heats]
    figure, axes = plt.subplots(
        len(names), count, figsize=(1.35 * count + 1, 1.5 * len(names)), squeeze=False, layout="constrained"
    )
    for column in range(count):
        picture = np.moveaxis(data.images[column], 0, -1).squeeze()
        axes[0][column].set_title(data.class_names[data.labels[column]], fontsize=9)
        for line, name in enumerate(names):
            axis = axes[line][column]
            axis.imshow(picture, cmap="gray")
            if line:
                axis.imshow(heats[name][column], cmap="jet", alpha=0.5, vmin=0, vmax=1)
            axis.set(xticks=[], yticks=[])
            if not column:
                axis.set_ylabel(name, fontsize=9)
    figure.savefig(path, dpi=DPI)
    plt.close(figure)
