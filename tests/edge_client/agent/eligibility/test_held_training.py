"""Training in a held worker pauses within a batch, resumes there, and ends when it is stopped."""

import contextlib
import queue
import threading
from typing import Any

import torch
from torch import nn

from edge_client.agent.worker import Worker
from edge_client.data.sources import load_source
from edge_client.training.loop import train
from edge_client.training.results import TrainingStopped
from schemas.strategy import TrainingPlan

PATIENCE_S = 60
PLAN = TrainingPlan(batch_size=8, local_epochs=2, seed=3)


class Counting(nn.Linear):
    """Linear layer that counts its batches and signals the third one."""

    def __init__(self) -> None:
        super().__init__(64, 10)
        self.batches, self.third = 0, threading.Event()
        self.on_third: Any = lambda: None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        if self.batches == 3:
            self.on_third()
            self.third.set()
        return super().forward(x)


def network() -> tuple[nn.Sequential, Counting]:
    torch.manual_seed(0)
    layer = Counting()
    return nn.Sequential(nn.Flatten(), layer), layer


def trained(module: nn.Module, worker: Worker, cancelled: threading.Event) -> threading.Thread:
    data = load_source("digits").subset(range(80))

    def run() -> None:
        with contextlib.suppress(TrainingStopped):
            train(module, data, PLAN, should_stop=lambda: worker.should_stop(cancelled))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_training_resumes_at_the_held_batch_with_bit_identical_weights():
    plain, _ = network()
    trained(plain, Worker(queue.SimpleQueue()), threading.Event()).join(PATIENCE_S)
    module, layer = network()
    worker = Worker(queue.SimpleQueue())
    waits = threading.Event()
    layer.on_third = worker.hold
    wait_for = worker._changed.wait_for
    worker._changed.wait_for = lambda until: (waits.set(), wait_for(until))[1]  # type: ignore[method-assign]
    thread = trained(module, worker, threading.Event())
    assert waits.wait(PATIENCE_S)
    assert layer.batches == 3
    worker.resume()
    thread.join(PATIENCE_S)
    # 80 examples in batches of 8, two epochs.
    assert layer.batches == 20
    assert torch.equal(module[1].weight, plain[1].weight)


def test_held_training_ends_when_the_worker_is_stopped():
    module, layer = network()
    worker = Worker(queue.SimpleQueue())
    layer.on_third = worker.hold
    thread = trained(module, worker, worker.cancelled)
    assert layer.third.wait(PATIENCE_S)
    worker.stop()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert layer.batches == 3
