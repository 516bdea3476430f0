"""A whole federation: server, broker and device processes, over real sockets."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import onnx
import pytest

from edge_client.agent import task_runner
from edge_client.agent.settings import TaskContext
from edge_client.inference.onnx_model import load_model
from edge_client.transport.broker_link import BrokerAddress, parse_address
from edge_server.cli.demo import device_name
from edge_server.config.config import Config
from edge_server.observability.report.report import write_report
from edge_server.storage.journal_reader import JournalReader
from edge_server.transport.broker.launch import running_broker
from schemas.messages import Task, Update, decode_task
from tests.integration import device_threads
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, Run, demo_config
from tests.integration.device_processes import devices, end_device, start_device

Serve = Callable[[Config], Run]


def small_config(**overrides: Any) -> Config:
    """Three devices, and no delivery at the end."""
    return demo_config(**{"clients.num-clients": 3, "deliver": "none", **overrides})


@ONE_BROKER
def test_devices_of_different_tiers_train_together_and_end_with_their_own_models(
    serve: Serve, address: BrokerAddress, tmp_path: Path
) -> None:
    # The second model is better on every device, which would keep the first one otherwise.
    words = {"deliver-every": 1, "num-clients": 3, "training.warm-up-steps": 0}
    config = demo_config(**words, **{"tiers.ratios": "[0.7, 0.5, 0.0]"})
    with devices(config, address, tmp_path / "devices") as processes:
        run = serve(config)
        summary = run.finished()
        assert [process.wait(timeout=30) for process in processes] == [0] * 3
    check_deliveries(run.folder.journal, tmp_path / "devices")
    assert summary.outcome == "finished"
    assert summary.rounds == 2
    assert [device.tier for device in sorted(summary.devices, key=lambda d: d.tier)] == [1, 2, 3]
    parameters = [device.parameters or 0 for device in sorted(summary.devices, key=lambda d: d.tier)]
    assert parameters == sorted(set(parameters))
    for device in summary.devices:
        assert device.torch_accuracy == device.onnx_accuracy
        assert device.max_difference is not None
        assert device.max_difference < 1e-4
    check_history(run.folder.path, 4 * sum(parameters))
    check_onnx(run.folder.path, tmp_path / "devices", summary.run)
    assert write_report(run.folder.path).stat().st_size > 1000


def check_deliveries(journal: Path, state: Path) -> None:
    """Check that every device exported the models of both rounds from the server's graph."""
    with closing(JournalReader(journal)) as reader:
        deliveries, tasks = reader.deliveries(), reader.tasks()
    names = [device_name(index) for index in range(3)]
    assert sorted((delivery.device, delivery.round) for delivery in deliveries) == sorted(
        product(names, (1, 2))
    )
    graphs = {decode_task(task).blobs["graph"].digest for _, _, task, _ in tasks}
    assert len(graphs) == 1
    for name in names:
        log = (state / name / "client.log").read_text()
        assert log.count("delivery accepted") == 2
        assert "drawing the graph" not in log


def check_history(folder: Path, all_models: int) -> None:
    lines = [json.loads(line) for line in (folder / "history.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [1, 2]
    assert all(len(line["completed"]) == 3 for line in lines)
    # Shared blocks are sent once, so the total is less than the sum of the models.
    assert all(line["downlink_bytes"] < 0.75 * all_models for line in lines)
    for line in lines:
        assert {
            "test_accuracy",
            "tier_accuracy",
            "train_loss",
            "weights",
            "dropped",
            "rejected",
        } <= line.keys()
    for name in ("federation.toml", "summary.json", "journal.sqlite", "models/round-0002/state.safetensors"):
        assert (folder / name).stat().st_size > 0


def check_onnx(folder: Path, state: Path, run: str) -> None:
    for tier in range(1, 4):
        of_server = load_model(folder / "onnx" / f"tier-{tier}.onnx")
        of_device = load_model(state / device_name(tier - 1) / "models" / "model.onnx")
        # The device chooses the fastest variant, and may have fitted its model to its data.
        may_differ = ("variant", "parent", "personalisation", "class_frequencies")
        own = {key: value for key, value in of_device.provenance.items() if key not in may_differ}
        assert own == of_server.provenance
        assert of_server.provenance["run_id"] == run
        assert of_server.provenance["tier"] == str(tier)
        onnx.checker.check_model(onnx.load(folder / "onnx" / f"tier-{tier}.onnx"))


@contextlib.contextmanager
def run_with_killed_device(
    config: Config, address: BrokerAddress, state: Path, serve: Serve
) -> Iterator[Run]:
    """A run that loses device 0, a process, in its first round; the other devices are threads.

    The process is stopped before the round, so that it cannot finish its task.
    """
    run, lost = serve(config), start_device(config, address, state, 0)
    try:
        run.watched.until(lambda now: len(now.devices) == 1)
        os.kill(lost.pid, signal.SIGSTOP)
        with device_threads.devices(config, address, state, first=1):
            run.watched.until(lambda now: now.phase == "training")
            lost.kill()
            yield run
    finally:
        lost.kill()
        lost.wait()


@ONE_BROKER
def test_a_device_that_is_killed_during_a_round_does_not_stop_the_run(
    serve: Serve, address: BrokerAddress, tmp_path: Path
) -> None:
    with run_with_killed_device(small_config(), address, tmp_path / "devices", serve) as run:
        summary = run.finished()
    lost = device_name(0)
    assert summary.outcome == "finished"
    assert summary.rounds == 2
    history = run.server.reporter.counters.history
    assert history[0].dropped == (lost,)
    assert lost not in history[1].selected


@ONE_BROKER
def test_a_device_that_returns_participates_again(
    serve: Serve, address: BrokerAddress, tmp_path: Path
) -> None:
    config = small_config(**{"rejoin-s": 60.0})
    with run_with_killed_device(config, address, tmp_path / "devices", serve) as run:
        run.watched.until(lambda now: any(device.state == "offline" for device in now.devices))
        back = start_device(config, address, tmp_path / "devices", 0)
        try:
            summary = run.finished()
        finally:
            end_device(back)
    assert summary.outcome == "finished"
    assert all(len(record.completed) == 3 for record in run.server.reporter.counters.history)


def test_a_broker_restart_is_survived(
    tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker restarts in round two, which no device can finish before the broker stops."""
    gone, train = threading.Event(), task_runner.do_training

    def do_training(task: Task, place: TaskContext, **more: Any) -> Update:
        assert task.round == 1 or gone.wait(DEADLINE_S)
        return train(task, place, **more)

    monkeypatch.setattr(task_runner, "do_training", do_training)
    config = small_config(rounds=3)
    with running_broker("embedded", tmp_path / "one") as first:
        port, address = first.port, parse_address(first.url)
        scope = device_threads.devices(config, address, tmp_path / "devices")
        scope.__enter__()
        request.addfinalizer(lambda: scope.__exit__(None, None, None))
        request.addfinalizer(gone.set)
        run = Run(config, address, tmp_path / "run")
        request.addfinalizer(run.stop)
        run.watched.until(lambda now: len(now.history) == 1)
    gone.set()
    with running_broker("embedded", tmp_path / "two", port=port):
        assert run.finished().outcome == "finished"


def test_a_broker_with_small_packets_suffices(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """With a limit of 128 kB, as some cloud brokers have, blobs travel in chunks of 64 kB."""
    broker = subprocess.Popen(
        [sys.executable, "-m", "edge_server.transport.broker", "--port", "0", "--packet-bytes", "131072"],
        stdout=subprocess.PIPE,
        text=True,
    )
    request.addfinalizer(broker.kill)
    assert broker.stdout is not None
    _, host, port = broker.stdout.readline().split()
    address = parse_address(f"mqtt://{host}:{port}")
    config = small_config(rounds=1)
    with device_threads.devices(config, address, tmp_path / "devices"):
        run = Run(config, address, tmp_path / "run")
        request.addfinalizer(run.stop)
        assert run.finished().outcome == "finished"
    assert len(run.server.reporter.counters.history[0].completed) == 3
