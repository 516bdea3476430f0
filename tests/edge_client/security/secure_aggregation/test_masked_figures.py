"""Figures of a model become numbers, whose weighted mean gives the figures of all devices."""

import numpy as np
import pytest

from edge_client.security.secure_aggregation.masked_figures import (
    as_measured,
    as_numbers,
    figure_shapes,
    only_measures,
)
from schemas.messages import TrainTask
from schemas.statistics import StatisticsRequest
from schemas.values import ModelSpec, TrainingMetrics
from tests.edge_server.coordinator.validation.test_firewall import task as firewall_task


def task(learning_task: str, classes: int, *, by_class: bool = False) -> TrainTask:
    model = ModelSpec(name="mlp", input_shape=(4,), num_classes=classes, task=learning_task)
    made = firewall_task()
    assert isinstance(made, TrainTask)
    training = made.training.model_copy(update={"local_epochs": 0})
    changed = {"model": model, "by_class": by_class, "returned": (), "training": training}
    return made.model_copy(update=changed)


def of_all(found: list[TrainingMetrics], asked: TrainTask) -> TrainingMetrics:
    """What a masked sum of these measurements is, without the masks."""
    numbers, counts = [as_numbers(metrics, asked) for metrics in found], [m.measured_on for m in found]
    assert {n: a.shape for n, a in numbers[0].items()} == figure_shapes(asked.model, by_class=asked.by_class)
    means = {name: np.average([n[name] for n in numbers], axis=0, weights=counts) for name in numbers[0]}
    return as_measured(means, asked.model, sum(counts))


def measured(count: int, **more) -> TrainingMetrics:
    return TrainingMetrics(examples=count, epochs=0, steps=0, measured_on=count, **more)


def test_shares_are_weighted_by_examples_and_one_that_a_device_lacks_does_not_count() -> None:
    found = of_all(
        [
            measured(10, received_loss=1.0, metrics={"accuracy": 0.5, "auroc": 0.75}),
            measured(30, received_loss=2.0, metrics={"accuracy": 0.9}),
        ],
        task("classification", 3),
    )
    assert found.metrics == pytest.approx({"accuracy": 0.8, "auroc": 0.75})
    assert (found.accuracy, found.received_loss) == (pytest.approx(0.8), 1.75)
    assert (found.measured_on, found.by_class) == (40, ())


def test_root_mean_squares_add_up_as_squares() -> None:
    asked = task("regression", 2)
    found = of_all([measured(5, metrics={"rmse": 3.0}), measured(5, metrics={"rmse": 4.0})], asked)
    assert found.metrics == pytest.approx({"rmse": 12.5**0.5})


def test_counts_by_class_add_up() -> None:
    asked = task("classification", 3, by_class=True)
    found = of_all(
        [
            measured(10, metrics={"accuracy": 0.7}, by_class=((7, 5), (3, 2), (0, 0))),
            measured(7, metrics={"accuracy": 1.0}, by_class=((1, 1), (0, 0), (6, 6))),
        ],
        asked,
    )
    assert found.by_class == ((8, 6), (3, 2), (6, 6))


def test_numbers_that_no_device_can_have_are_brought_to_where_they_can_be() -> None:
    model = task("classification", 2).model
    count = figure_shapes(model, by_class=True)["figures"][0]
    hostile = {
        "figures": np.full(count, -5.0),
        "known": np.ones(count),
        "classes": np.array([[-3.0, 1.0], [0.5, 0.75]]),
    }
    found = as_measured(hostile, model, 10)
    assert set(found.metrics.values()) == {0.0}
    assert (found.received_loss, found.by_class) == (0.0, ((0, 0), (5, 5)))
    # Rounding of what every device has.
    over = as_measured({"figures": np.full(count, 1.0000001), "known": np.ones(count)}, model, 10)
    assert over.accuracy == 1.0


def test_only_a_task_that_asks_for_nothing_else_measures() -> None:
    asked = task("classification", 3)
    assert only_measures(asked)
    trains = asked.training.model_copy(update={"local_epochs": 1})
    for change in ({"training": trains}, {"returned": None}, {"statistics": StatisticsRequest()}):
        assert not only_measures(asked.model_copy(update=change))
