"""Estimated and measured memory of training without torch: `python -m tests.step_graphs.memory`.

With arguments such as `two-nn/1` only these networks and tiers. The measured value is the growth of a process
without torch that trains two rounds on 160 examples in batches of 32, on one thread, with the allocator of a
device.
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
from tests.step_graphs.cases import TIERS, Case, network
from tests.step_graphs.graphs import write_graphs
from tests.step_graphs.parity import task_of
from tests.training_memory.measured import OPTIMIZERS, SHAPES


def grown(model: str, tier: int, optimizer: str) -> tuple[int, int]:
    """Estimated and measured bytes."""
    case, found = Case(model, tier), network(model, tier)
    settings: dict[str, Any] = {"learning_rate": 0.01, "batch_size": 32, **OPTIMIZERS[optimizer]}
    plan = TrainingPlan(**settings)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_graphs(case, folder)
        np.savez(folder / "arrays.npz", **found.arrays)
        (folder / "task.json").write_text(task_of(found, plan).model_dump_json())
        command = [sys.executable, "-m", "tests.step_graphs.grown", str(folder)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures = json.loads(printed)
    return figures["predicted"], figures["measured"]


def table(chosen: Sequence[tuple[str, int]]) -> Iterator[str]:
    """A Markdown table, a row per network and tier: estimated / measured MB with each optimizer."""
    yield f"| network | tier | {' | '.join(OPTIMIZERS)} |"
    yield "|" + " --- |" * (2 + len(OPTIMIZERS))
    for model, tier in chosen:
        cells = []
        for optimizer in OPTIMIZERS:
            predicted, measured = grown(model, tier, optimizer)
            cells.append(f"{predicted / 1e6:.1f} / {measured / 1e6:.1f} = {predicted / measured:.2f}")
        yield f"| {model} | {tier} | {' | '.join(cells)} |"


def main(words: Sequence[str]) -> None:
    """Print the table, a line as it is measured."""
    every = [(model, tier) for model in SHAPES for tier in TIERS]
    for line in table([(model, tier) for model, tier in every if not words or f"{model}/{tier}" in words]):
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
