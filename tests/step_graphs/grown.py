"""Trains a case that `memory` has written: `python -m tests.step_graphs.grown FOLDER TRAINER`.

Prints the bytes by which the process grew, its peak, and the estimate of a training without torch. It sets up
its allocator as a device with that trainer does, imports what a device imports, and first trains on a few
examples, so that kernels are loaded.
"""

import json
import sys
from pathlib import Path

import edge_client.agent.agent
import edge_client.agent.task_runner
import edge_client.cli.commands.run  # noqa: F401
from edge_client.system.process_memory import give_back, keep_freed_memory, return_large_blocks
from edge_client.training.choice import make_trainer
from edge_client.training.step_graphs.running import memory
from edge_client.training.step_graphs.running.graph_file import read_step_graph
from edge_client.training.trainer import TrainingJob
from schemas.values import TrainerName
from tests.benchmarks.resident import forget_peak, peak_rss, rss
from tests.step_graphs.written import Written

EXAMPLES = 160
ROUNDS = 2
SET_UP = {"torch": keep_freed_memory, "onnx": return_large_blocks}


def main(folder: Path, name: TrainerName) -> None:
    """Train and print."""
    SET_UP[name]()
    written, trainer = Written(folder), make_trainer(name, threads=1)
    trainer.train(written.job(4))
    give_back()
    forget_peak()
    before = rss() or 0
    job = written.job(EXAMPLES)
    for _ in range(ROUNDS):
        trainer.train(job)
    peak = peak_rss() or 0
    assert ("torch" in sys.modules) == (name == "torch")
    predicted = _predicted(written, job) if name == "onnx" else None
    print(json.dumps({"predicted": predicted, "measured": peak - before, "peak": peak}))


def _predicted(written: Written, job: TrainingJob) -> int:
    """The estimate, with the network and the examples, which a device has before it estimates."""
    graph, plan = read_step_graph(written.step), job.plan
    weights = sum(array.nbytes for array in written.arrays.values())
    part = memory.micro_batch(graph, plan, written.arrays, examples=EXAMPLES, board=Path("/"))
    needed = memory.step_bytes(graph, plan, weights, batch=part or plan.batch_size, split=part is not None)
    return needed + weights + job.data.train.images.nbytes


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])  # type: ignore[arg-type]
