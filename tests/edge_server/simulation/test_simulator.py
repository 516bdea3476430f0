"""Whole simulations: their run folders depend only on the configuration."""

import dataclasses
import json
from pathlib import Path

import pytest

from edge_server.cli.main import main
from edge_server.config.board_profiles import profile
from edge_server.config.load import load_config
from edge_server.coordinator.round_recorder import RoundRecorder
from edge_server.simulation import simulator
from edge_server.simulation.population import VirtualDevice
from edge_server.simulation.resume import open_folder
from edge_server.simulation.simulator import Availability
from schemas.errors import ConfigError
from tests.edge_server.simulation.in_process import in_process
from tests.edge_server.simulation.small import SMALL, StopAfter, history, last_model, run
from tests.slow import mark_slow

MIXED = ("num-clients=6", "fraction=0.5", "rounds=3")


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of mixed tiers in this process."""
    out = tmp_path_factory.mktemp("unbroken") / "run"
    assert run(out, "attending", *MIXED).outcome == "finished"
    return out


def test_the_number_of_workers_changes_nothing(unbroken: Path, tmp_path: Path) -> None:
    run(tmp_path / "two", "attending", *MIXED, "workers=2", engine=None)
    assert (tmp_path / "two" / "history.jsonl").read_bytes() == (unbroken / "history.jsonl").read_bytes()
    assert last_model(tmp_path / "two") == last_model(unbroken)


@mark_slow
def test_another_seed_changes_history(unbroken: Path, tmp_path: Path) -> None:
    run(tmp_path / "other", "attending", *MIXED, "federation.seed=1")
    assert (tmp_path / "other" / "history.jsonl").read_bytes() != (unbroken / "history.jsonl").read_bytes()


@pytest.mark.parametrize(
    "word", ["federation.trains=false", "federation.statistics=true", "clients.mode=buffered"]
)
def test_a_run_that_cannot_be_resumed_is_not_offered_it(tmp_path: Path, word: str) -> None:
    (tmp_path / "history.jsonl").touch()
    with pytest.raises(ConfigError, match="holds an earlier run: name another folder"):
        open_folder(tmp_path, load_config("fedavg", [word, "num-clients=10"]), resume=False)


def test_virtual_time_increases_from_round_to_round(unbroken: Path) -> None:
    times = [record["virtual_time_s"] for record in history(unbroken)]
    assert 0 < times[0] < times[1] < times[2]
    assert all(record["duration_s"] > 0 for record in history(unbroken))


def test_an_interrupted_run_leaves_a_complete_folder_and_resumes_to_the_same_result(
    unbroken: Path, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    summary = run(out, "attending", *MIXED, watcher=StopAfter(2))
    assert (summary.outcome, summary.rounds) == ("interrupted", 2)
    assert len(history(out)) == 2
    assert {"summary.json", "report.html", "checkpoint.json", "federation.toml"} <= {
        path.name for path in out.iterdir()
    }
    assert not (out / "scratch").exists()
    assert run(out, "attending", *MIXED, resume=True).outcome == "finished"
    assert (out / "history.jsonl").read_bytes() == (unbroken / "history.jsonl").read_bytes()
    assert last_model(out) == last_model(unbroken)


def test_a_full_disk_is_told_with_its_remedy_and_the_run_goes_on_with_more_room(
    unbroken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors, record = iter([OSError(28, "No space left on device")]), RoundRecorder.record_round

    def full_once(recorder: RoundRecorder) -> None:
        for error in errors:
            raise error
        record(recorder)

    out = tmp_path / "run"
    monkeypatch.setattr(RoundRecorder, "record_round", full_once)
    summary = run(out, "attending", *MIXED)
    assert summary.outcome == "failed"
    assert "the disk is full or failing: [Errno 28] No space left on device: make room" in summary.detail
    assert run(out, "attending", *MIXED, resume=True).outcome == "finished"
    assert (out / "history.jsonl").read_bytes() == (unbroken / "history.jsonl").read_bytes()


@mark_slow
def test_a_run_that_closed_no_round_resumes_from_its_start(unbroken: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run(out, "attending", *MIXED, watcher=StopAfter(0)).outcome == "interrupted"
    assert run(out, "attending", *MIXED, resume=True).outcome == "finished"
    assert (out / "history.jsonl").read_bytes() == (unbroken / "history.jsonl").read_bytes()


def test_a_client_that_diverges_is_refused_by_name_and_the_run_continues(tmp_path: Path) -> None:
    # Shards of one label each: the device with label 3 diverges.
    out = tmp_path / "run"
    source = (
        "data.source=python:tests.edge_server.simulation.small:one_poisoned",
        "partition=shards",
        "shards=1",
        "learning-rate=0.01",
        "firewall.leave-one-out=0",
    )
    summary = run(out, "fedavg", *source, "num-clients=4", "rounds=2", "local-epochs=3")
    assert summary.outcome == "finished"
    for record in history(out):
        (rejected,) = record["rejected"]
        assert rejected["reason"] == "not-finite"
        assert rejected["device"] not in record["completed"]
        assert len(record["completed"]) == 3


def test_a_round_without_valid_updates_fails_the_run_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*SMALL, "num-clients=2", "learning-rate=1e20", "local-epochs=2", "--format", "json")
    with in_process():
        assert main(["simulate", "fedavg", *words, "--out", str(tmp_path / "run")]) == 1
    shown = capsys.readouterr()
    detail = json.loads((tmp_path / "run" / "summary.json").read_text())["detail"]
    assert "0 of 2 updates, below the quorum; 2 of 2 failed with not-finite ('" in detail
    assert "change what the reason names" in shown.err
    assert "--resume" not in shown.err


# With one tier the boards alternate: device-0001 is a Pi Zero 2, device-0002 a Jetson Nano.
UNLIKE = ('simulation.clock=["pi-zero-2", "jetson-nano"]', "num-clients=2", "local-epochs=20", "rounds=2")


def test_a_straggler_is_dropped_at_the_deadline(tmp_path: Path) -> None:
    # 54,800 MACs x 719 examples x 20 epochs x 3 passes x 2 FLOP = 4.7 GFLOP: 2.7 s on the Zero 2 at
    # 1.77 GFLOP/s, 0.1 s on the Nano at 59.
    run(tmp_path / "run", "fedavg", *UNLIKE, "deadline-s=1.5")
    for record in history(tmp_path / "run"):
        assert (record["completed"], record["dropped"]) == (["device-0002"], ["device-0001"])
        assert record["duration_s"] == pytest.approx(1.5)


class Spells:
    """A presence that is offline between two times in seconds."""

    def __init__(self, begin: float, end: float) -> None:
        self._begin, self._end = begin, end

    def online(self, t: float) -> bool:
        return not self._begin <= t < self._end

    def next_change(self, t: float) -> float:
        return next((moment for moment in (self._begin, self._end) if moment > t), float("inf"))


def _away(monkeypatch: pytest.MonkeyPatch, device: str, begin: float, end: float) -> None:
    def presence(config: object, virtual: VirtualDevice, index: int) -> Spells | None:
        return Spells(begin, end) if virtual.name == device else None

    monkeypatch.setattr(simulator, "presence_of", presence)


def test_a_device_that_leaves_delays_a_round_only_for_the_rejoin_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _away(monkeypatch, "device-0001", 1.0, float("inf"))
    run(tmp_path / "run", "fedavg", *UNLIKE, "rejoin-s=3")
    first, second = history(tmp_path / "run")
    assert first["dropped"] == ["device-0001"]
    # Lost at 1.0 s; its last will arrives soon after, and 3 s later the round continues without it.
    assert 4.0 < first["virtual_time_s"] < 4.5
    assert second["selected"] == ["device-0002"]


def test_a_device_that_returns_in_time_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its work ends at about 2.9 s, while it is offline; it reports when it is online again.
    _away(monkeypatch, "device-0001", 2.0, 6.0)
    run(tmp_path / "run", "fedavg", *UNLIKE, "rejoin-s=10")
    first, _ = history(tmp_path / "run")
    assert first["completed"] == ["device-0001", "device-0002"]
    assert 6.0 < first["virtual_time_s"] < 7.0


def test_an_interrupted_download_continues(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The Zero 2 downloads 0.22 MB in about 0.1 s; the link is cut after 0.05 s.
    _away(monkeypatch, "device-0001", 0.05, 1.0)
    run(tmp_path / "run", "fedavg", *UNLIKE, "rejoin-s=10")
    assert history(tmp_path / "run")[0]["dropped"] == []


def test_a_device_that_returns_after_a_resumption_says_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first round ends at about 0.8 s.
    _away(monkeypatch, "device-0001", 0.9, 1.0)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    run(whole, "fedavg", *UNLIKE, "local-epochs=5")
    run(broken, "fedavg", *UNLIKE, "local-epochs=5", watcher=StopAfter(1))
    run(broken, "fedavg", *UNLIKE, "local-epochs=5", resume=True)
    first, second = history(whole)
    assert first["virtual_time_s"] < 0.9 < 1.0 < second["virtual_time_s"]
    assert history(broken) == [first, second]


def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every device online for 3 s and offline for 1 s on average."""
    board = dataclasses.replace(profile("pi-zero-2"), online_s=3.0, offline_s=1.0)

    def presence(config: object, virtual: VirtualDevice, index: int) -> Availability:
        return Availability(board, seed=0, device=virtual.name)

    monkeypatch.setattr(simulator, "presence_of", presence)


RESTLESS = (
    'simulation.clock=["pi-zero-2"]',
    "num-clients=10",
    "fraction=0.5",
    "local-epochs=40",
    "rejoin-s=0.5",
    "quorum=0.2",
    "rounds=4",
)


@mark_slow
def test_a_restless_fleet_resumes_to_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _restless(monkeypatch)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert run(whole, "attending", *RESTLESS).outcome == "finished"
    assert any(record["dropped"] for record in history(whole))
    assert run(broken, "attending", *RESTLESS, watcher=StopAfter(1)).outcome == "interrupted"
    assert run(broken, "attending", *RESTLESS, resume=True).outcome == "finished"
    assert (whole / "history.jsonl").read_bytes() == (broken / "history.jsonl").read_bytes()
    assert last_model(whole) == last_model(broken)


@mark_slow
def test_a_restless_fleet_fills_buffers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _restless(monkeypatch)
    buffered = ("fraction=1.0", "clients.mode=buffered", "buffer-size=3", "concurrency=6")
    words = (*RESTLESS, *buffered, "firewall.leave-one-out=0")
    assert run(tmp_path / "run", "fedavg", *words).outcome == "finished"


def test_virtual_time_does_not_advance_without_a_clock(tmp_path: Path) -> None:
    run(tmp_path / "run", "fedavg", "simulation.clock=[]", "num-clients=3", "rounds=2")
    assert [record["virtual_time_s"] for record in history(tmp_path / "run")] == [0.0, 0.0]


@mark_slow
def test_buffered_rounds_are_the_same_with_any_number_of_workers(tmp_path: Path) -> None:
    words = ("clients.mode=buffered", "buffer-size=2", "num-clients=6", "rounds=4", "local-epochs=2")
    run(tmp_path / "1", "fedavg", *words)
    run(tmp_path / "2", "fedavg", *words, "workers=2", engine=None)
    single, double = ((tmp_path / name / "history.jsonl").read_bytes() for name in ("1", "2"))
    assert single == double
    assert all(len(record["completed"]) >= 2 for record in history(tmp_path / "1"))


@pytest.mark.parametrize("concurrency", [2, 6])
def test_the_bytes_and_seconds_of_buffered_rounds_add_up_to_the_totals_of_the_run(
    tmp_path: Path, concurrency: int
) -> None:
    words = ("clients.mode=buffered", "buffer-size=2", "num-clients=6", "rounds=5")
    summary = run(tmp_path / "run", "fedavg", *words, f"concurrency={concurrency}")
    rounds = history(tmp_path / "run")
    # Messages after the last closed round belong to no round: acknowledgements and dropped tasks.
    assert sum(record["uplink_bytes"] for record in rounds) <= summary.uplink_bytes
    late = summary.uplink_bytes - sum(record["uplink_bytes"] for record in rounds)
    assert late <= 6 * max(record["uplink_bytes"] / len(record["completed"]) for record in rounds)
    assert sum(record["duration_s"] for record in rounds) == pytest.approx(
        rounds[-1]["virtual_time_s"], abs=0.1
    )


def test_a_run_resumes_to_the_same_result_after_a_device_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # SCAFFOLD's control is a mean over all clients that ever took part, including the lost one.
    words = ("num-clients=4", "rounds=4", "rejoin-s=0.1", 'simulation.clock=["pi-4"]', "local-epochs=2")
    _away(monkeypatch, "device-0001", 0.35, float("inf"))
    for out, stop in (("straight", None), ("resumed", StopAfter(2))):
        run(tmp_path / out, "scaffold", *words, watcher=stop)
    run(tmp_path / "resumed", "scaffold", *words, resume=True)
    straight, resumed = ((tmp_path / name / "history.jsonl").read_bytes() for name in ("straight", "resumed"))
    assert straight == resumed
    assert last_model(tmp_path / "straight") == last_model(tmp_path / "resumed")
    assert 0 < sum("device-0001" in record["completed"] for record in history(tmp_path / "straight")) < 4


@in_process()
def test_json_output_has_a_line_per_round_and_the_summary(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["num-clients=2", "rounds=2", "--out", str(tmp_path / "run"), "--format", "json"]
    assert main(["simulate", "fedavg", *SMALL, *words]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["round"] for line in lines[:-1]] == [1, 2]
    assert lines[-1]["outcome"] == "finished"
    assert (tmp_path / "run" / lines[-1]["onnx"]["1"]).is_file()
