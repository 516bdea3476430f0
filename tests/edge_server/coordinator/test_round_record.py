"""A round's record: figures of all devices' held-out data."""

import pytest

from edge_client.data.tasks.registry import learning_task
from edge_server.coordinator.round_record import pooled_metrics


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
