"""Tests of the benchmarks' measuring code."""

import inspect
import os
import re
import socket
import subprocess
import sys
import time
from operator import attrgetter
from pathlib import Path

import pytest

from edge_server.config.load import load_config
from edge_server.coordinator import jobs, reporter, round_driver, server
from tests.benchmarks.__main__ import BENCHMARKS, LONGER, found
from tests.benchmarks.federation import Timings
from tests.benchmarks.figure import Figure, remarks
from tests.benchmarks.flower.comparison import Theirs, figures_of, launch_figures, memory_figure
from tests.benchmarks.flower.deployment import Mark, Rounds, read_marks
from tests.benchmarks.flower.environment import CONSTRAINTS, _pins
from tests.benchmarks.light_server import LightCoordinator
from tests.benchmarks.processes import processes
from tests.benchmarks.profile import table
from tests.benchmarks.resident import family_peaks
from tests.benchmarks.wire import relay
from tests.memory_limit import NoGroup, limited_group


@pytest.mark.parametrize("place", [*BENCHMARKS.values(), *LONGER.values()])
def test_the_command_finds_every_benchmark(place: str) -> None:
    assert callable(found(place))


def test_a_light_coordinator_has_every_attribute_that_a_server_uses(tmp_path: Path) -> None:
    """The journal of deliveries is exempt: with `deliver = "none"` nothing is delivered."""
    used = {
        attribute
        for module in (jobs, server, round_driver, reporter)
        for attribute in re.findall(
            r"(?<!edge_server\.)\b_?coordinator\.([a-z_.]+[a-z_])", inspect.getsource(module)
        )
    }
    assert {"planner.plan", "checker.check_all", "aggregator.close", "context.durations.time_block"} <= used
    light = LightCoordinator(load_config("fedavg", []), tmp_path, b"model", None)
    for path in used - {"storage.journal.write_delivery"}:
        attrgetter(path)(light)


def test_a_relay_passes_bytes_on_and_counts_each_way() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, relay(listener.getsockname()) as wire:
        began = time.time()
        with socket.create_connection(("127.0.0.1", wire.port), timeout=30) as near:
            far, _ = listener.accept()
            with far:
                near.sendall(b"x" * 300_000)
                received = b""
                while len(received) < 300_000:
                    received += far.recv(1 << 16)
                far.sendall(b"yes")
                assert near.recv(3) == b"yes"
        assert received == b"x" * 300_000
        assert wire.towards.between(began - 1, time.time()) == 300_000
        assert wire.back.between(began - 1, time.time()) == 3
        assert wire.towards.between(began - 2, began - 1) == 0


def test_processes_end_with_the_block(tmp_path: Path) -> None:
    with processes() as started:
        code = "import signal; print('up', flush=True); signal.pause()"
        process = started.start("sleeper", [sys.executable, "-c", code], log=tmp_path / "log")
        while "up" not in (tmp_path / "log").read_text():
            assert not started.wait("sleeper", 0.05)
        assert sum(family_peaks(process.pid).values()) > 1
        assert started.cpu_seconds().keys() == {"sleeper"}
    assert process.poll() is not None


def test_a_round_of_flower_lasts_from_the_end_of_the_previous_round_to_its_own_end(tmp_path: Path) -> None:
    lines = [
        '{"what": "tasks", "round": 1, "at": 10.0, "pid": 1}',
        '{"what": "closed with 10", "round": 1, "at": 14.0, "pid": 1}',
        '{"what": "tasks", "round": 2, "at": 15.0, "pid": 1}',
        '{"what": "closed with 10", "round": 2, "at": 20.5, "pid": 1}',
        '{"what": "tas',
    ]
    (tmp_path / "marks").write_text("\n".join(lines))
    rounds = Rounds(read_marks(tmp_path / "marks"), 0.0)
    assert rounds.round_s == [6.5]
    assert rounds.at("tasks", 1) == 10.0


def test_flower_gets_our_versions_of_torch_and_numpy_only() -> None:
    pins = _pins(CONSTRAINTS.read_text()).splitlines()
    assert sorted(pin.partition("==")[0] for pin in pins) == ["numpy", "torch"]


def test_the_profile_lists_our_functions_by_their_share(tmp_path: Path) -> None:
    graph = tmp_path / "server.svg"
    graph.write_text(
        "<title>all (400 samples, 100%)</title>"
        "<title>run (edge_server/coordinator/server.py:150) (100 samples, 25.00%)</title>"
        "<title>run (edge_server/coordinator/server.py:160) (100 samples, 25.00%)</title>"
        "<title>Link.&lt;lambda&gt; (edge_client/transport/mqtt_client.py:3) (1 sample, 0.25%)</title>"
        "<title>fsync (os.py:3) (300 samples, 75.00%)</title>"
    )
    lines = table(graph).splitlines()
    # 100 + 100 of 400 samples, a hundred per second.
    assert lines[1].split() == ["50.0", "%", "2.00", "s", "run", "(edge_server/coordinator/server.py)"]
    assert "Link.<lambda>" in lines[2]
    assert len(lines) == 3


def test_figures_are_flower_over_ours_except_the_launch() -> None:
    ours = Timings(100.0, {1: 102.0}, {1: 103.0, 2: 103.5}, egress=2e6)
    marks = [Mark("tasks", 1, 220.0), Mark("closed with 10", 1, 230.0), Mark("closed with 10", 2, 240.0)]
    flower = Theirs(Rounds(marks, 20e6), tasks_s=8.0, closed_s=18.0, memory_mb={"flower-supernode 7": 100.0})
    # 10 s against 0.5 s, 20 MB against 2 MB; from launch to the tasks 2 s against 8 s.
    figures = figures_of("1.66 M", ours, flower, "1.0", "", "float32")
    assert [figure.median for figure in figures] == [500.0, 20.0, 10.0]
    assert launch_figures({"1.66 M": ours}, {"1.66 M": flower}, "")[0].median == 0.25
    assert memory_figure({"1.66 M": flower}, "1.0", "").median == 100.0


def test_without_flower_only_ours_is_reported_and_the_reason() -> None:
    ours = Timings(100.0, {1: 102.0}, {1: 103.0, 2: 103.5}, egress=2e6)
    figures = [
        *figures_of("25 M", ours, None, "", "no wheels", "float32"),
        *launch_figures({"25 M": ours}, {}, "no wheels"),
    ]
    assert [figure.reason for figure in figures] == ["", *["no wheels"] * 4]


def test_the_reason_is_reported_for_a_missed_target_and_for_a_missing_measurement() -> None:
    missed, reached = (Figure("area", "name", "s", (2.0,), most, reason="the disk") for most in (1.0, 3.0))
    assert remarks([missed, reached]) == "- **area, name**: MISSED: the disk"
    assert remarks([Figure("area", "name", "s", (), 1.0, reason="no disk")]) == "- **area, name**: no disk"


def test_a_process_beyond_the_limit_of_its_group_is_killed() -> None:
    allocate = [sys.executable, "-c", "block = bytearray(b'x') * 200_000_000"]
    try:
        with limited_group(f"edge-test-{os.getpid()}", 50_000_000) as group:
            assert subprocess.run(group.command(allocate)).returncode == -9
            assert group.killed == 1
    except NoGroup as reason:
        pytest.skip(str(reason))
