"""A running federation reports to Prometheus, to a tracker and to the log."""

import logging
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client import CollectorRegistry

from edge_client.system.logging.formatters import facts_of
from edge_server.observability.prometheus.collector import RunCollector
from edge_server.observability.snapshot import WatcherGroup
from edge_server.observability.trackers.writers import WriterThread
from tests.edge_server.observability.trackers.test_threads import RecordingWriter
from tests.edge_server.simulation import small


def test_a_run_is_reported_to_the_metrics_the_writer_and_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Four devices with one class each; the images of the last device make every network non-finite."""
    collector, writer, reported = RunCollector(tmp_path), RecordingWriter(), []
    writer_thread = WriterThread("kept", writer, tmp_path / "run")

    def listen(record: logging.LogRecord) -> bool:
        # Read the facts now: facts shared by all lines change later.
        reported.append(facts_of(record))
        return True

    caplog.handler.addFilter(listen)
    with caplog.at_level(logging.WARNING):
        small.run(
            tmp_path / "run",
            "fedavg",
            "data.source=python:tests.edge_server.simulation.small:one_poisoned",
            "num-clients=4",
            "partition=shards",
            "shards=1",
            "firewall.leave-one-out=0",
            "rounds=2",
            "batch-size=10",
            "learning-rate=0.01",
            watcher=WatcherGroup(collector, writer_thread),
        )
    writer_thread.close()
    registry = CollectorRegistry()
    registry.register(collector)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"edge_server_{name}", labels)

    assert value("rounds_closed_total") == 2
    assert value("phase", phase="ended") == 1
    assert value("updates_total", outcome="counted") == 6
    refused = {name: value("refusals_total", reason=name) for name in ("not-finite", "task-failed")}
    assert sum(count or 0 for count in refused.values()) >= 2
    for work in ("planning", "closing", "aggregating", "testing"):
        assert value("work_duration_seconds_count", work=work) == 2, work
    assert value("work_duration_seconds_count", work="checking") >= 6
    assert value("phase_duration_seconds_count", phase="training") == 2
    assert value("received_bytes_total") > 0
    assert writer.rounds == [1, 2]
    assert writer.ended[0].outcome == "finished"
    about = [facts for facts in reported if facts.get("reason") in refused]
    assert {facts["round"] for facts in about} == {1, 2}
    assert all(facts["device"] and facts["run"] and facts["federation"] for facts in about)
