"""The example app, unmodified, in device processes of a federation over a real broker."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_server.transport.broker.launch import find_mosquitto, running_broker

DEADLINE_S = 500
ROOT = Path(__file__).parents[4]
APP = ROOT / "deploy" / "examples" / "flower"
DIGITS = ROOT / "edge_client" / "data" / "digits.npz"


@pytest.fixture
def processes() -> Iterator[list[subprocess.Popen[str]]]:
    """The processes of a test, which are killed at its end."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for process in started:
        process.kill()
        process.communicate()


def begin(processes: list[subprocess.Popen[str]], module: str, *words: str) -> subprocess.Popen[str]:
    # Run in the app's folder, as a user would: `--flower .` makes it importable, also for the server.
    command = [sys.executable, "-m", module, *words]
    path = {"PYTHONPATH": f"{ROOT}:{APP}", "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command, cwd=APP, env=path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    processes.append(process)
    return process


@pytest.mark.skipif(
    importlib.util.find_spec("flwr") is None, reason="Flower is not installed: make test-flower"
)
@pytest.mark.skipif(find_mosquitto() is None, reason="no mosquitto on this machine")
@pytest.mark.timeout(2 * DEADLINE_S)
def test_an_unmodified_app_trains_on_every_device(
    tmp_path: Path, processes: list[subprocess.Popen[str]]
) -> None:
    with running_broker("mosquitto", tmp_path / "broker") as broker:
        words = [
            "federation.toml",
            "rounds=2",
            "deadline-s=450",
            "--broker",
            broker.url,
            "--out",
            str(tmp_path / "run"),
        ]
        server = begin(processes, "edge_server.cli.main", "run", *words)
        for share in ("1/2", "2/2"):
            name = f"pi-{share[0]}"
            begin(
                processes,
                "edge_client.cli.main",
                *("run", "--broker", broker.url, "--federation", "flower", "--device-id", name, "--once"),
                *("--data", "digits", "--share", share, "--state-dir", str(tmp_path / name)),
                *("--flower", ".", "--flower-config", f"data={DIGITS}", "--model-code", "network:net"),
            )
        output, _ = server.communicate(timeout=DEADLINE_S)
    assert server.returncode == 0, output
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["outcome"] == "finished"
    # With ten classes, guessing has an accuracy of 0.1.
    assert summary["test_accuracy"] > 0.5
    lines = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert [json.loads(line)["completed"] for line in lines] == [["pi-1", "pi-2"]] * 2
    # 1,438 digits in two halves, four fifths of each: the app's own split, not the device's.
    assert {device["rounds"] for device in summary["devices"]} == {2}
    assert all(device["torch_accuracy"] > 0.5 for device in summary["devices"])
