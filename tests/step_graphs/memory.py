"""Memory of training without torch: `python -m tests.step_graphs.memory [NETWORK/TIER ...]`.

Two tables: estimated and measured growth of a process without torch that trains two rounds on 160 examples in
batches of 32, on one thread, with the allocator of a device; with `--peaks`, the peak of a whole process with
each trainer, which has imported what a device imports.
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from schemas.strategy import TrainingPlan
from schemas.values import TrainerName
from tests.step_graphs.cases import TIERS, Case, network
from tests.step_graphs.following import task_of
from tests.step_graphs.graphs import write_graphs
from tests.step_graphs.written import ARRAYS, CHANNELS, TASK
from tests.training_memory.measured import OPTIMIZERS, SHAPES

Chosen = Sequence[tuple[str, int]]


def grown(model: str, tier: int, optimizer: str) -> tuple[int, int]:
    """Estimated and measured bytes."""
    figures = _measured(model, tier, optimizer, "onnx")
    return figures["predicted"], figures["measured"]


def peak(model: str, tier: int, trainer: TrainerName) -> int:
    """Bytes of a process that trains with SGD."""
    return _measured(model, tier, "sgd", trainer)["peak"]


def _measured(model: str, tier: int, optimizer: str, trainer: TrainerName) -> dict[str, int]:
    case, found = Case(model, tier), network(model, tier)
    settings: dict[str, Any] = {"learning_rate": 0.01, "batch_size": 32, **OPTIMIZERS[optimizer]}
    plan = TrainingPlan(**settings)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_graphs(case, folder)
        np.savez(folder / ARRAYS, **found.arrays)
        (folder / TASK).write_text(task_of(found, plan).model_dump_json())
        (folder / CHANNELS).write_text(found.channels.model_dump_json())
        command = [sys.executable, "-m", "tests.step_graphs.grown", str(folder), trainer]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, int] = json.loads(printed)
    return figures


def table(chosen: Chosen) -> Iterator[str]:
    """A Markdown table, a row per network and tier: estimated / measured MB with each optimizer."""
    yield f"| network | tier | {' | '.join(OPTIMIZERS)} |"
    yield "|" + " --- |" * (2 + len(OPTIMIZERS))
    for model, tier in chosen:
        cells = []
        for optimizer in OPTIMIZERS:
            predicted, measured = grown(model, tier, optimizer)
            cells.append(f"{predicted / 1e6:.1f} / {measured / 1e6:.1f} = {predicted / measured:.2f}")
        yield f"| {model} | {tier} | {' | '.join(cells)} |"


def peaks(chosen: Chosen) -> Iterator[str]:
    """A Markdown table, a row per network and tier: peak MB of a process with each trainer."""
    yield "| network | tier | torch | onnxruntime | of torch's |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for model, tier in chosen:
        torch, onnx = peak(model, tier, "torch"), peak(model, tier, "onnx")
        yield f"| {model} | {tier} | {torch / 1e6:.0f} | {onnx / 1e6:.0f} | {onnx / torch:.2f} |"


def main(words: Sequence[str]) -> None:
    """Print a table, a line as it is measured."""
    names = [word for word in words if word != "--peaks"]
    every = [(model, tier) for model in SHAPES for tier in TIERS]
    chosen = [(model, tier) for model, tier in every if not names or f"{model}/{tier}" in names]
    for line in (peaks if "--peaks" in words else table)(chosen):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
