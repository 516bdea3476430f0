"""What devices state that they have measured, under names that are no figures here."""

from edge_server.observability.terminal.measured import rows_of
from edge_server.storage.records import MeasuredDevice


def test_a_figure_of_an_unknown_name_is_left_out() -> None:
    metrics = {"accuracy": 0.5, "of-a-later-version": 2.0}
    (row, whole) = rows_of({"pi": MeasuredDevice(tier=1, examples=10, metrics=metrics)})
    assert row.metrics == whole.metrics == {"accuracy": 0.5}
