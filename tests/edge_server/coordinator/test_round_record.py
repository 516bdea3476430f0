"""A round's record: figures of all devices' held-out data."""

import pytest

from edge_client.data.tasks.detection import COUNTED, SCORE_BINS
from edge_client.data.tasks.registry import learning_task
from edge_server.coordinator.round_record import client_metrics, closed_event, measured_device, pooled_metrics
from edge_server.observability.terminal.measured import rows_of
from edge_server.storage.records import Rejected
from schemas.errors import Reason
from schemas.values import TrainingMetrics
from tests.edge_server.observability.terminal.shown import record


@pytest.mark.parametrize(
    ("errors", "pooled"),
    [
        # At most ten medians: 0.1, 0.1, 0.1 and 1.0.
        ((0.1, 0.1, 0.1, 1e9), 0.325),
        # The median of those above 0 is 0.3: nothing is cut.
        ((0.0, 0.0, 0.0, 0.0, 0.3, 0.6), 0.15),
        ((0.0, 0.0), 0.0),
    ],
)
def test_an_error_counts_as_ten_medians_of_those_above_zero_at_most(errors, pooled):
    found = pooled_metrics(learning_task("regression"), [({"mae": error}, 10) for error in errors])
    assert found == pytest.approx({"mae": pooled})


def measured(map50: float, boxes: int, *, true: int = 0, false: int = 0, **more: object) -> TrainingMetrics:
    """Of one class with so many boxes: the true ones have the best scores, the false ones the worst."""
    row = [0] * COUNTED
    row[0], row[SCORE_BINS], row[SCORE_BINS + 1] = boxes, true, false
    figures = {"map50": map50, "map": map50 / 2}
    given = {"examples": 10, "measured_on": 10, "metrics": figures, "counts": (tuple(row),), **more}
    return TrainingMetrics(epochs=1, steps=1, **given)


def test_boxes_of_devices_add_up_to_a_common_precision() -> None:
    """Of five boxes four are found: the precision is 1 at the recalls 0 to 0.8, 81 of 101, then 0.

    The mean of the devices' figures would be a half.
    """
    task, found = learning_task("detection"), [measured(1.0, 4, true=4), measured(0.0, 1, false=1)]
    assert client_metrics(task, found) == pytest.approx({"map50": 81 / 101, "map": 0.25})
    rows = {
        row.name: row for row in rows_of({str(n): measured_device(m, 1, ()) for n, m in enumerate(found)})
    }
    assert list(rows["all"].metrics) == ["map50", "map"]
    assert rows["all"].metrics["map50"] == pytest.approx(81 / 101)
    assert rows["0"].metrics["map50"] == 1


def test_figures_without_counts_of_every_device_are_means() -> None:
    task = learning_task("detection")
    found = [measured(1.0, 4, true=4), measured(0.0, 1, counts=())]
    assert client_metrics(task, found)["map50"] == 0.5


def test_counts_of_more_pictures_than_are_believed_are_scaled() -> None:
    """Forty boxes of forty pictures count as ten, all of them missed, beside ten that are found."""
    found = [measured(1.0, 10, true=10), measured(0.0, 40, measured_on=40)]
    assert client_metrics(learning_task("detection"), found)["map50"] == pytest.approx(51 / 101)


def test_a_device_that_was_refused_early_is_not_refused_again_at_the_close() -> None:
    rows = [("a", "not-finite", "'w' holds NaN", True), ("b", "harmful", "less accuracy", False)]
    fields = ("device", "reason", "detail", "early")
    closed = record(1, rejected=tuple(Rejected(**dict(zip(fields, row, strict=True))) for row in rows))
    assert closed_event(closed).refused == {"b": (Reason.HARMFUL, "less accuracy")}
