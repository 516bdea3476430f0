"""Trains a case that `memory` has written, without torch: `python -m tests.step_graphs.grown FOLDER`.

Prints the bytes by which the process grew, and the estimate. It sets up its allocator as a device does, and
first trains on four examples, so that kernels are loaded.
"""

import json
import sys
from pathlib import Path

import numpy as np

from edge_client.data.dataset import LabelledData, labelled
from edge_client.data.local import LocalData
from edge_client.system.malloc import return_large_blocks
from edge_client.system.process_memory import give_back
from edge_client.training.step_graphs.running import memory
from edge_client.training.step_graphs.running.graph_file import read_step_graph
from edge_client.training.step_graphs.running.trainer import OnnxTrainer
from edge_client.training.trainer import TrainingJob
from schemas.messages import TrainTask
from schemas.messages.tasks import GRAPH, STEP
from schemas.strategy import TrainingPlan
from schemas.submodel import ChannelMap
from tests.benchmarks.resident import forget_peak, peak_rss, rss

EXAMPLES = 160
ROUNDS = 2


def main(folder: Path) -> None:
    """Train and print."""
    return_large_blocks()
    task = TrainTask.model_validate_json((folder / "task.json").read_text())
    arrays = dict(np.load(folder / "arrays.npz"))
    few = task.model_copy(update={"training": task.training.model_copy(update={"batch_size": 2})})
    trainer = OnnxTrainer(threads=1)
    trainer.train(_job(few, arrays, folder, 4))
    give_back()
    forget_peak()
    before = rss() or 0
    job = _job(task, arrays, folder, EXAMPLES)
    for _ in range(ROUNDS):
        trainer.train(job)
    measured = (peak_rss() or 0) - before
    assert "torch" not in sys.modules
    print(json.dumps({"predicted": _predicted(task.training, arrays, folder, job), "measured": measured}))


def _predicted(plan: TrainingPlan, arrays: dict[str, np.ndarray], folder: Path, job: TrainingJob) -> int:
    """The estimate, with the network and the examples, which a device has before it estimates."""
    graph = read_step_graph(folder / f"{STEP}.onnx")
    weights = sum(array.nbytes for array in arrays.values())
    part = memory.micro_batch(graph, plan, arrays, examples=EXAMPLES, board=Path("/"))
    needed = memory.step_bytes(graph, plan, weights, batch=part or plan.batch_size, split=part is not None)
    images = job.data.train.images
    return needed + weights + images.nbytes + images.size * np.dtype(np.float32).itemsize


def _job(task: TrainTask, arrays: dict[str, np.ndarray], folder: Path, examples: int) -> TrainingJob:
    data = _examples(task.model.input_shape, examples)
    return TrainingJob(
        task=task,
        plan=task.training,
        data=LocalData(data, data.subset(range(0))),
        received={"model": arrays},
        kept={},
        channel_map=ChannelMap(groups={}, parameters={}),
        board=Path("/"),
        on_epoch=lambda _: None,
        should_stop=lambda: False,
        graphs={name: folder / f"{name}.onnx" for name in (GRAPH, STEP)},
    )


def _examples(shape: tuple[int, ...], count: int) -> LabelledData:
    random = np.random.default_rng(0)
    return labelled(random.integers(0, 255, (count, *shape), dtype=np.uint8), np.arange(count) % 10)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
