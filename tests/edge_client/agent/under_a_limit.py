"""Train with a limited address space: `python -m tests.edge_client.agent.under_a_limit`."""

import json
import queue
import resource
import threading
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from edge_client.agent.session.events import WorkDone, WorkFailed
from edge_client.agent.worker import Worker
from edge_client.data.dataset import make_labelled_data
from edge_client.system.hardware.memory import memory
from edge_client.system.process_memory import keep_freed_memory
from edge_client.training.loop import train
from edge_client.training.torch_trainer import micro_batch
from schemas.messages import Task
from schemas.strategy import TrainingPlan
from tests.schemas.examples import MESSAGES_BY_KIND

HEADROOM = 200 * 1024 * 1024
SHAPE = (1, 64, 64)


def network() -> nn.Module:
    """Two activations of 16x64x64 floats: more than half a megabyte per example."""
    return nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(65_536, 10))


def main() -> None:
    """Print the outcomes of a task that cannot fit, an unforeseen allocation, and a task in micro-batches."""
    # As `edge-client run` does: otherwise concurrent threads may reserve an additional 64 MB arena.
    keep_freed_memory()
    torch.set_num_threads(1)
    module, plan = network(), TrainingPlan(learning_rate=0.01, batch_size=1024)
    data = make_labelled_data(np.zeros((256, *SHAPE), np.uint8), np.arange(256) % 10)
    # Libraries and threads make their one-time allocations before the limit applies.
    train(module, data.subset(range(4)), plan)
    found: dict[str, Any] = {}
    inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
    worker = Worker(inbox)
    _ended(worker, inbox, lambda: None)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + HEADROOM, resource.RLIM_INFINITY))
    found["free_mb"] = (memory().free or 0) / 2**20
    huge = plan.model_copy(update={"batch_size": 65_536})
    found["too_large"] = _ended(worker, inbox, lambda: _fit(_normalised(), huge, 20_000))
    found["by_surprise"] = _ended(worker, inbox, lambda: torch.zeros(2**31))
    at_once = _fit(module, plan, len(data))
    train(module, data, plan, micro_batch=at_once)
    found["in_parts"] = at_once
    print(json.dumps(found))


def _normalised() -> nn.Module:
    return nn.Sequential(nn.BatchNorm2d(1), network())


def _fit(module: nn.Module, plan: TrainingPlan, examples: int) -> int | None:
    return micro_batch(module, SHAPE, plan, examples=examples, free=memory().free)


def _ended(worker: Worker, inbox: queue.SimpleQueue[Any], job: Any) -> dict[str, str]:
    """The failure that the device would report for a task that runs `job`, or an empty dictionary."""
    task = MESSAGES_BY_KIND["task"]
    assert isinstance(task, Task)

    def done(_: threading.Event) -> WorkDone:
        job()
        return WorkDone(MESSAGES_BY_KIND["update"])  # type: ignore[arg-type]

    worker.begin(task, done)
    event = inbox.get(timeout=60)
    # The next thread can reuse the 64 MB arena of this thread only after it has ended.
    assert worker.thread is not None
    worker.thread.join(60)
    return {"reason": str(event.reason), "detail": event.detail} if isinstance(event, WorkFailed) else {}


def _address_space() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmSize:"))


if __name__ == "__main__":
    main()
