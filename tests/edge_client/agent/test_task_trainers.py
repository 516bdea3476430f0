"""Which of a device's trainers does a task."""

from typing import Any

import pytest

from edge_client.agent.settings import ROOM_BYTES, TaskTrainers
from schemas.messages import DeliverTask, TrainTask
from schemas.messages.tasks import GRAPH, STEP

PLAIN = TrainTask.model_construct(blobs={})
WITH_GRAPHS = TrainTask.model_construct(blobs={GRAPH: None, STEP: None})
DELIVERY = DeliverTask.model_construct(blobs={GRAPH: None})


@pytest.fixture
def made() -> list[str | None]:
    return []


def trainers(made: list[str | None], *names: Any) -> TaskTrainers:
    def make(name: str | None) -> Any:
        made.append(name)
        return name

    return TaskTrainers(names, make)


def test_a_device_with_both_trainers_uses_onnxruntime_for_tasks_with_graphs(made) -> None:
    both = trainers(made, "torch", "onnx")
    assert [both.of(task) for task in (PLAIN, WITH_GRAPHS, PLAIN)] == ["torch", "onnx", "torch"]
    assert made == ["torch", "onnx"]


def test_a_delivery_is_for_the_trainer_of_the_last_task(made) -> None:
    both = trainers(made, "torch", "onnx")
    both.of(WITH_GRAPHS)
    assert both.of(DELIVERY) == "onnx"
    assert made == ["onnx"]
    assert trainers(made, "torch", "onnx").of(DELIVERY) == "torch"


def test_a_device_with_one_trainer_uses_it_for_every_task(made) -> None:
    assert [trainers(made, "torch").of(task) for task in (PLAIN, WITH_GRAPHS)] == ["torch", "torch"]
    assert [trainers(made).of(task) for task in (PLAIN, WITH_GRAPHS)] == [None, None]


def test_with_little_memory_a_second_trainer_leaves_the_choice_to_the_first_task(made) -> None:
    trainers(made, "torch", "onnx").warm_up(ROOM_BYTES - 1)
    assert made == []
    trainers(made, "torch", "onnx").warm_up(ROOM_BYTES)
    trainers(made, "torch", "onnx").warm_up(None)
    trainers(made, "onnx").warm_up(1)
    assert made == ["torch", "torch", "onnx"]
