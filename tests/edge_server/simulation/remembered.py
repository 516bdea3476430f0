"""Trains with torch, once for equal jobs: the simulations of one test file have half of them in common."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from edge_client.training.torch_trainer import TorchTrainer
from edge_client.training.trainer import Trained, TrainingJob
from schemas.tensors.arrays import Arrays, Groups

MAX_RESULTS = 300
"""Number of results in memory: 70 MB with the tests' network."""
DECISIVE = {*("model", "preprocessing", "spec", "training", "trained", "adapters", "own_model", "by_class")}
"""Fields of a task on which its result depends."""

_results: OrderedDict[bytes, Trained] = OrderedDict()


class RememberingTrainer(TorchTrainer):
    """Answers a job with the result of an earlier one in this process that had the same inputs."""

    def train(self, job: TrainingJob) -> Trained:
        key = _digest(job)
        if key not in _results:
            _results[key] = _computed(super().train(job))
        _results.move_to_end(key)
        if len(_results) > MAX_RESULTS:
            _results.popitem(last=False)
        return _results[key]


def _digest(job: TrainingJob) -> bytes:
    digest = hashlib.sha256(job.task.model_dump_json(include=DECISIVE).encode())
    digest.update(job.task.blobs["channel-map"].digest.encode())
    # The board's free memory limits the examples per forward pass.
    digest.update(bytes(job.board))
    for data in (job.data.train, job.data.held_out):
        for array in (data.images, data.labels):
            digest.update(np.ascontiguousarray(array))
    for name, array in (*_named("received", job.received), *_named("kept", job.kept)):
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(array))
    return digest.digest()


def _named(origin: str, groups: Groups) -> Iterator[tuple[str, np.ndarray]]:
    for group in sorted(groups):
        for name in sorted(groups[group]):
            yield f"{origin}/{group}/{name}", groups[group][name]


def _computed(trained: Trained) -> Trained:
    """Read all arrays, which the next training may change."""
    groups, kept = (
        {name: _read(group) for name, group in of.items()} for of in (trained.groups, trained.kept)
    )
    return replace(trained, delta=_read(trained.delta), groups=groups, kept=kept)


def _read(arrays: Arrays) -> Arrays:
    return {name: np.array(array) for name, array in arrays.items()}
