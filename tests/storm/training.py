"""Training as a tiny pure function of the device, the model that it has received, and luck.

No training gives the same update twice, so an update that is lost and made again does not go unnoticed.
Changes are multiples of 12 / 4096: the mean of up to four of them is exact, whatever the order and the
grouping in which they are added.
"""

import hashlib
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from edge_client.agent.settings import TaskContext
from edge_client.agent.task_runner import answer_fields, open_received
from edge_client.compression.uplink import encode_answer
from edge_client.pruning.update_coordinates import Answer
from schemas.messages import DeliverTask, Delivery, Task, TrainTask, Update
from schemas.values import DeliveryMetrics, TrainingMetrics
from tests.schemas.examples import plain_metrics

EXAMPLES = 12
UNIT = np.float32(12 / 4096)
BETA = 0.5
"""The momentum of the server's optimizer: exact, too."""


def fingerprint(params: Mapping[str, Any]) -> str:
    """A digest of a model's parameters, by name."""
    hashed = hashlib.sha256()
    for name in sorted(params):
        hashed.update(name.encode() + np.ascontiguousarray(params[name], np.float32).tobytes())
    return hashed.hexdigest()


@dataclass(frozen=True)
class Trained:
    """An update as it was made: by which device, from the model of which fingerprint, and its change."""

    device: str
    received: str
    change: Mapping[str, Any]


def _change(luck: int, known: str, params: Mapping[str, Any]) -> dict[str, Any]:
    """What a training adds to a model."""
    changed = {}
    for name in params:
        word = hashlib.sha256(f"{luck} {name} {known}".encode()).digest()
        numbers = np.resize(np.frombuffer(word, np.uint8), params[name].shape).astype(np.int32) % 7 - 3
        changed[name] = (numbers * UNIT).astype(np.float32)
    return changed


def do_task(
    task: Task, context: TaskContext, luck: int, made: MutableMapping[str, Trained]
) -> Update | Delivery:
    """The result of a task; an update's blob is in the store, and its origin in `made`, when this returns."""
    with open_received(task, context) as (channel_map, received):
        params = {name: np.array(received["model"][name]) for name in received["model"]}
        if isinstance(task, DeliverTask):
            return Delivery(**answer_fields(task, context), metrics=_delivered(params))
        assert isinstance(task, TrainTask)
        known = fingerprint(params)
        delta = _change(luck, known, params)
        answer = Answer(task, channel_map, {"model": delta})
        sending = encode_answer(answer, delta, task, channel_map, {})
        blob = context.store.put_groups(
            sending.groups, chunk_bytes=context.chunk_bytes, write=sending.chain.write
        )
        made[blob.digest] = Trained(context.device, known, delta)
        metrics = TrainingMetrics(examples=EXAMPLES, epochs=1, steps=1)
        return Update(**answer_fields(task, context), blob=blob, spec=answer.spec, metrics=metrics)


def _delivered(params: Mapping[str, Any]) -> DeliveryMetrics:
    return plain_metrics(onnx_sha256=fingerprint(params), examples=1)
