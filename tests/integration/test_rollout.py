"""Rollouts with real processes over a real broker: a good model, a killed server, models that fail."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.inference.model_slots import ServedModel, Slots
from edge_server.releases.registry.registry import Registry
from edge_server.releases.rollout.groups import groups_of
from edge_server.transport.broker.launch import running_broker
from schemas.security.manifest import decode_manifest, manifest_path
from tests.edge_client.agent.rollout.test_comparison import says_box
from tests.edge_server.releases.rollout.sample_versions import entered, fitted, key_in
from tests.forked import forked_python, start_forked

DEADLINE_S = 90
DEVICES = ("pi-1", "pi-2")
SLOW = pytest.mark.skipif(os.environ.get("CHAOS_EVERY_WRITE") != "1", reason="run by make chaos")
WORDS = ("--canary", "1", "--groups", "1", "--expect", "2", "--gather", "0", "--silent-after", "60")


@dataclass(frozen=True)
class Field:
    """A broker, devices and a registry of signed versions."""

    url: str
    folder: Path
    registry: Registry

    def slots(self, device: str) -> Slots:
        return Slots(self.folder / device / "serving")

    def serving(self) -> dict[str, str | None]:
        """The version that each device serves."""
        found = {device: self.slots(device).current() for device in DEVICES}
        return {device: None if slot is None else slot.model.version for device, slot in found.items()}

    def switches(self, version: str) -> set[str]:
        """The devices that switched to the version at any time, by their logs."""
        logs = {device: (self.folder / device / "client.log").read_text() for device in DEVICES}
        return {device for device, log in logs.items() if f"version {version}: switched" in log}


class Server:
    """`edge-server rollout` as a process, with its output lines."""

    def __init__(self, field: Field, version: str, *words: str) -> None:
        options = ("--broker", field.url, "--registry", field.registry.folder, "--format", "json", *WORDS)
        self.process = start_forked("edge-server", "rollout", version, *options, *words)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.output: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a JSON line that fulfils `wanted`."""
        while line := self._lines.get(timeout=DEADLINE_S):
            self.output.append(line)
            value = json.loads(line) if line.startswith("{") else {}
            if wanted(value):
                return dict(value)
        raise AssertionError(f"ended without that line: {self.output}")

    def ended(self) -> dict[str, Any]:
        """Wait for the summary and the end of the process."""
        summary = self.until(lambda value: "outcome" in value)
        self.process.wait(timeout=DEADLINE_S)
        return summary


@contextlib.contextmanager
def running(program: Server | ServedModelProcess) -> Iterator[None]:
    try:
        yield
    finally:
        program.process.kill()
        program.process.wait()


def versions_of(kind: str, folder: Path) -> tuple[str, list[np.ndarray] | list[bytes]]:
    """A source, and models of it: three of which none is worse than another, and a broken one."""
    if kind == "boxes":
        boxes = np.tile(np.array([[0, 8, 8, 24, 24]], np.float32), (60, 1, 1))
        np.savez(folder / "boxes.npz", images=np.zeros((60, 1, 64, 64), np.uint8), labels=boxes)
        files = [says_box(folder / f"{n}.onnx", (n, n, n + 16, n + 16)) for n in (8, 7, 9, 16)]
        return f"npz:{folder / 'boxes.npz'}", [file.read_bytes() for file in files]
    good = fitted()
    # Different files that compute the same predictions.
    return "digits", [*(good * 2**number for number in range(3)), np.roll(good, 1, axis=1)]


@pytest.fixture
def field(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Field]:
    """Two devices that require the server's signature, and serve v0."""
    registry, signer = Registry(tmp_path / "registry"), key_in(tmp_path)
    (tmp_path / "signing.pub").write_text(signer.public_text)
    source, models = versions_of(getattr(request, "param", "digits"), tmp_path)
    names = ("v0", "v1", "v2", "broken")
    first, *_ = [entered(registry, name, made, signer) for name, made in zip(names, models, strict=True)]
    processes: list[subprocess.Popen[bytes]] = []
    # Devices do not need torch here, and its import would take longer than the test.
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "torch.py").write_text("raise ImportError('not on this device')")
    paths = os.pathsep.join([str(tmp_path / "bare"), *filter(None, [os.environ.get("PYTHONPATH")])])
    without_torch = {**os.environ, "PYTHONPATH": paths}
    with running_broker("auto", tmp_path / "broker") as broker_process:
        field = Field(broker_process.url, tmp_path, registry)
        try:
            for share, device in enumerate(DEVICES, start=1):
                path = registry.onnx("v0", 1)
                signed = decode_manifest(manifest_path(path).read_bytes())
                note = ServedModel(version="v0", digest=first.tiers[0].sha256)
                field.slots(device).fill(path.read_bytes(), note, signed=signed)
                field.slots(device).switch(note.digest)
                words = ["--broker", broker_process.url, "--federation", "home", "--device-id", device]
                words += ["--data", source, "--share", f"{share}/{len(DEVICES)}", "--tier", "1"]
                words += ["--state-dir", str(tmp_path / device), "--trust", str(tmp_path / "signing.pub")]
                with (tmp_path / device / "client.log").open("wb") as log:
                    command = [sys.executable, "-m", "edge_client.cli.main", "run", *words]
                    processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=without_torch))
            yield field
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(timeout=DEADLINE_S)


class ServedModelProcess:
    """`edge-client serve` of a device, with a client that sends requests."""

    def __init__(self, field: Field, device: str) -> None:
        words = ["--state-dir", str(field.folder / device), "--port", "0", "--poll-s", "0.1"]
        words += ["--trust", str(field.folder / "signing.pub"), "--format", "json", "--quiet"]
        command = [*forked_python(), "-u", "-m", "edge_client.cli.main", "serve", *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        printed = "".join(iter(self.process.stdout.readline, "}\n"))
        self._port = int(json.loads(printed + "}")["url"].rpartition(":")[2])
        self.statuses: list[int] = []

    def ask_until(self, version: str) -> None:
        """Send requests one by one until the version answers."""
        image = json.dumps({"pixels": [[0] * 8] * 8}).encode()
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=DEADLINE_S)
            connection.request("POST", "/predict", image, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            value = json.loads(answer.read())
            connection.close()
            self.statuses.append(answer.status)
            if value.get("model", {}).get("version") == version:
                return
        raise AssertionError(f"{version} does not answer: {self.statuses[-5:]}, {value}")


def canary_of(version: str) -> str:
    """The device that is updated first; the choice is deterministic."""
    return groups_of(dict.fromkeys(DEVICES, 1), version, canary=1, groups=1)[0][0]


def test_a_model_that_crashes_in_use_reaches_only_the_canary_and_is_rolled_back(field: Field) -> None:
    canary = canary_of("v1")
    with (
        running(served := ServedModelProcess(field, canary)),
        running(server := Server(field, "v1", "--watch", "40")),
    ):
        # Requests continue during the switch, and none fails.
        served.ask_until("v0")
        server.until(lambda value: value.get("status") == "comparing")
        served.ask_until("v1")
        assert set(served.statuses) == {200}
        assert server.until(lambda value: value.get("status") == "watching")["device"] == canary
        # The service crashes, and its supervisor restarts it.
        served.process.kill()
        served.process.wait()
        with running(again := ServedModelProcess(field, canary)):
            summary = server.ended()
            again.ask_until("v0")
            assert set(again.statuses) == {200}
    assert (summary["outcome"], server.process.returncode) == ("stopped", 1)
    assert summary["devices"] == {**dict.fromkeys(DEVICES, "waiting"), canary: "rolled back"}
    assert field.switches("v1") == {canary}
    assert set(field.serving().values()) == {"v0"}
    assert field.registry.active("home") is None


@SLOW
def test_a_rollout_whose_server_is_killed_continues_with_the_same_command(field: Field) -> None:
    with running(first := Server(field, "v2", "--watch", "0.5")):
        first.until(lambda value: value.get("status") == "kept")
    assert sorted(filter(None, field.serving().values())) == ["v0", "v2"]
    with running(second := Server(field, "v2", "--watch", "0.5")):
        summary = second.ended()
    assert (summary["outcome"], second.process.returncode) == ("finished", 0)
    assert [group["devices"] for group in summary["groups"]] == [1, 1]
    assert set(field.serving().values()) == {"v2"}
    assert field.registry.active("home") == "v2"
    # The canary already served the model, and did not switch again.
    log = (field.folder / canary_of("v2") / "client.log").read_text()
    assert log.count("version v2: switched") == 1


@pytest.mark.parametrize("field", [pytest.param("digits", marks=SLOW), "boxes"], indirect=True)
def test_no_device_switches_to_a_model_with_wrong_answers(field: Field) -> None:
    with running(server := Server(field, "broken", "--watch", "0.5")):
        summary = server.ended()
    assert summary["outcome"] == "stopped"
    assert sorted(summary["devices"].values()) == ["refused", "waiting"]
    assert field.switches("broken") == set()
    refused = next(line for line in server.output if '"refused"' in line)
    assert json.loads(refused)["report"]["cause"] == "accuracy"


@SLOW
def test_a_version_is_withdrawn_by_hand(field: Field) -> None:
    with running(server := Server(field, "v1", "--watch", "0.5")):
        assert server.ended()["outcome"] == "finished"
    with running(back := Server(field, "v1", "--withdraw")):
        summary = back.ended()
    assert (summary["outcome"], summary["why"]) == ("stopped", "withdrawn by hand")
    assert back.process.returncode == 0
    assert field.registry.active("home") is None
    assert set(field.serving().values()) == {"v0"}
