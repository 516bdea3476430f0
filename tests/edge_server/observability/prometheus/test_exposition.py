"""The metrics of a run for Prometheus: every value, conventional names, no device names."""

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families

from edge_server.observability.prometheus.collector import RunCollector, exposition, run_registry
from edge_server.observability.snapshot import DeviceView, ServerParts, Snapshot, Workload
from tests.edge_server.observability.prometheus.running import PROMTOOL, busy
from tests.edge_server.observability.terminal.shown import record, snapshot

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def text(now: Snapshot | None, out: Path, at: float = 1000.0) -> str:
    collector = RunCollector(out, lambda: at)
    if now is not None:
        collector.show(now)
    kind, page = exposition(run_registry(collector))
    assert kind == "text/plain; version=0.0.4; charset=utf-8"
    return page.decode()


def samples(now: Snapshot, out: Path) -> Samples:
    families = text_string_to_metric_families(text(now, out))
    return {
        (sample.name.removeprefix("edge_server_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_state_of_a_run_is_exported(tmp_path: Path) -> None:
    metrics = samples(busy(), tmp_path)
    assert metrics["run_info", (("federation", "home"), ("run", "r1"))] == 1
    assert metrics["round", ()] == 3
    assert metrics["planned_rounds", ()] == 10
    assert metrics["rounds_closed_total", ()] == 2
    assert metrics["round_closed_timestamp_seconds", ()] == 1000
    assert metrics["round_limit_seconds", ()] == 600
    assert metrics["broker_connected", ()] == 1
    assert metrics["test_accuracy_ratio", ()] == 0.75
    assert metrics["tier_test_accuracy_ratio", (("tier", "1"),)] == 0.25
    assert metrics["privacy_epsilon", ()] == 2.5
    assert metrics["privacy_epsilon_budget", ()] == 8.0
    assert {phase: metrics["phase", (("phase", phase),)] for phase in ("training", "planning", "ended")} == {
        "training": 1,
        "planning": 0,
        "ended": 0,
    }


def test_devices_are_counted_by_state_and_tier_including_zeros(tmp_path: Path) -> None:
    metrics = samples(busy(), tmp_path)
    found = {
        dict(labels)["state"]: value
        for (name, labels), value in metrics.items()
        if name == "devices" and dict(labels)["tier"] == "1"
    }
    assert (found["training"], found["offline"], found["quarantined"]) == (2, 1, 0)
    assert metrics["devices", (("state", "refused"), ("tier", "5"))] == 1


def test_updates_and_refusals_are_counted(tmp_path: Path) -> None:
    # The first closed round had two updates; the second had one update, one refused and one missed.
    metrics = samples(busy(), tmp_path)
    outcomes = {o: metrics["updates_total", (("outcome", o),)] for o in ("counted", "refused", "missed")}
    assert outcomes == {"counted": 3, "refused": 1, "missed": 1}
    assert metrics["refusals_total", (("reason", "not-finite"),)] == 4
    # The counter exists before the first refusal, so that Prometheus sees the first increase.
    assert metrics["refusals_total", (("reason", "oversized"),)] == 0


def test_queues_bytes_and_durations_are_exported(tmp_path: Path) -> None:
    metrics = samples(busy(), tmp_path)
    queues = {q: metrics["queue_length", (("queue", q),)] for q in ("inbox", "jobs", "uploads", "outgoing")}
    assert queues == {"inbox": 7, "jobs": 2, "uploads": 3, "outgoing": 5}
    assert metrics["received_bytes_total", ()] == 1000
    assert metrics["sent_bytes_total", ()] == 2000
    # 0.02, 0.3 and 7,200 s: one up to 25 ms, two up to 0.5 s, the third beyond an hour.
    buckets = {
        bound: metrics["work_duration_seconds_bucket", (("le", bound), ("work", "checking"))]
        for bound in ("0.005", "0.025", "0.1", "0.5", "3600", "+Inf")
    }
    assert buckets == {"0.005": 0, "0.025": 1, "0.1": 1, "0.5": 2, "3600": 2, "+Inf": 3}
    assert metrics["work_duration_seconds_sum", (("work", "checking"),)] == pytest.approx(7200.32)
    assert metrics["work_duration_seconds_count", (("work", "checking"),)] == 3


def test_lease_standby_and_processes_are_exported(tmp_path: Path) -> None:
    assert not any(
        name in ("lease_epoch", "standby_ready", "processes") for name, _ in samples(busy(), tmp_path)
    )
    gateways = {"barn": True, "loft": False}
    parts = ServerParts(epoch=3, standby="farm-2, process 7", receivers=1, aggregators=2, gateways=gateways)
    metrics = samples(replace(busy(), load=replace(busy().load, parts=parts)), tmp_path)
    assert (metrics["lease_epoch", ()], metrics["standby_ready", ()]) == (3, 1)
    kinds = {kind: metrics["processes", (("kind", kind),)] for kind in ("receiver", "aggregator")}
    assert kinds == {"receiver": 1, "aggregator": 2}
    there = {site: metrics["gateway_connected", (("site", site),)] for site in gateways}
    assert there == {"barn": 1, "loft": 0}
    without = samples(replace(busy(), load=replace(busy().load, parts=ServerParts())), tmp_path)
    assert ("lease_epoch", ()) not in without
    assert without["standby_ready", ()] == 0


def test_the_process_and_the_disk_are_exported(tmp_path: Path) -> None:
    metrics = samples(busy(), tmp_path)
    assert metrics["process_resident_memory_bytes", ()] > 1e6
    assert metrics["process_cpu_seconds_total", ()] > 0
    assert 0 < metrics["disk_free_bytes", ()] <= metrics["disk_size_bytes", ()]


def test_text_from_devices_creates_no_series(tmp_path: Path) -> None:
    odd = DeviceView('evil"} 1\nedge_server_round 99', 1, 0.7, "my own state", reason="my own reason")
    now = replace(busy(), devices=(odd,), load=Workload(refusals={"my own reason": 2, "harmful": 1}))
    page = text(now, tmp_path)
    assert "evil" not in page
    assert "my own" not in page
    assert samples(now, tmp_path)["devices", (("state", "other"), ("tier", "1"))] == 1
    assert samples(now, tmp_path)["refusals_total", (("reason", "other"),)] == 2


def test_a_thousand_devices_create_no_more_series_than_ten(tmp_path: Path) -> None:
    def lines(count: int) -> int:
        views = [DeviceView(f"d{i}", i % 5 + 1, 0.0, "idle") for i in range(count)]
        return len(text(replace(busy(), devices=tuple(views)), tmp_path).splitlines())

    assert lines(1000) == lines(10)


def test_the_timestamp_of_a_round_is_its_closing_time(tmp_path: Path) -> None:
    now = 100.0
    collector = RunCollector(tmp_path, lambda: now)
    collector.show(snapshot(history=(record(1),)))
    now = 200.0
    collector.show(snapshot(history=(record(1),)))
    first = exposition(run_registry(collector))[1]
    collector.show(snapshot(history=(record(1), record(2))))
    second = exposition(run_registry(collector))[1]
    assert b"edge_server_round_closed_timestamp_seconds 100.0" in first
    assert b"edge_server_round_closed_timestamp_seconds 200.0" in second


def test_names_follow_the_conventions(tmp_path: Path) -> None:
    """The rules of prometheus.io/docs/practices/naming: base units, counters end in _total, a help text."""
    for family in text_string_to_metric_families(text(busy(), tmp_path)):
        assert family.documentation, family.name
        assert re.fullmatch(r"[a-z][a-z0-9_]*", family.name)
        assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent)(_|$)", family.name)
        assert family.name.startswith(("edge_server_", "process_", "python_"))
        names = {sample.name for sample in family.samples}
        assert (family.type == "counter") == any(name.endswith("_total") for name in names), family.name


def test_open_metrics_are_returned_on_request(tmp_path: Path) -> None:
    collector = RunCollector(tmp_path)
    collector.show(busy())
    kind, page = exposition(run_registry(collector), "application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in open_metrics(page.decode())}
    assert {"edge_server_round", "edge_server_rounds_closed", "edge_server_work_duration_seconds"} <= names


def test_only_process_metrics_exist_before_the_first_snapshot(tmp_path: Path) -> None:
    names = {family.name for family in text_string_to_metric_families(text(None, tmp_path))}
    assert "process_resident_memory_bytes" in names
    assert not any(name.startswith("edge_server_") for name in names)


@pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed: apt-get install prometheus")
def test_promtool_reports_no_problem(tmp_path: Path) -> None:
    page = text(busy(), tmp_path)
    checked = subprocess.run(
        [str(PROMTOOL), "check", "metrics"], input=page, text=True, capture_output=True, check=False
    )
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
