"""Rollouts with real processes over a real broker: a good model and a killed server, models that fail."""

from __future__ import annotations

import contextlib
import json
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_client.rollout.health import Health, write_health
from edge_client.slots import Slots
from edge_server.broker.launch import find_mosquitto, running_broker
from edge_server.demo import end_device
from edge_server.registry.registry import Registry
from tests.rollout.shelf import entered, fitted, key_in

DEADLINE_S = 90
DEVICES = ("pi-1", "pi-2")
WORDS = ("--canary", "1", "--groups", "1", "--expect", "2", "--gather", "0", "--silent-after", "60")


@dataclass(frozen=True)
class Field:
    """A broker, devices, a registry of signed versions."""

    url: str
    folder: Path
    registry: Registry

    def slots(self, device: str) -> Slots:
        return Slots(self.folder / device / "serving")

    def serving(self) -> dict[str, str | None]:
        """The version that each device serves."""
        found = {device: self.slots(device).current() for device in DEVICES}
        return {device: None if one is None else one.model.version for device, one in found.items()}

    def switches(self, version: str) -> set[str]:
        """The devices that were ever told to serve it, by their logs."""
        logs = {device: (self.folder / device / "client.log").read_text() for device in DEVICES}
        return {device for device, log in logs.items() if f"version {version}: switched" in log}


class Server:
    """`edge-server rollout` as a process; its lines are read as they come."""

    def __init__(self, field: Field, version: str, *words: str) -> None:
        command = [sys.executable, "-u", "-m", "edge_server.cli", "rollout", version, "--broker", field.url]
        command += ["--registry", str(field.registry.folder), "--format", "json", *WORDS, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.said: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put("")

    def until(self, wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a line that is so."""
        while line := self._lines.get(timeout=DEADLINE_S):
            self.said.append(line)
            value = json.loads(line) if line.startswith("{") else {}
            if wanted(value):
                return dict(value)
        raise AssertionError(f"ended without it: {self.said}")

    def ended(self) -> dict[str, Any]:
        """Wait for the summary and the end of the process."""
        summary = self.until(lambda value: "outcome" in value)
        self.process.wait(timeout=DEADLINE_S)
        return summary


@contextlib.contextmanager
def running(*servers: Server) -> Iterator[None]:
    try:
        yield
    finally:
        for server in servers:
            server.process.kill()
            server.process.wait()


@pytest.fixture(scope="module")
def field(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Field]:
    """Two devices that insist on the server's signature."""
    folder = tmp_path_factory.mktemp("rollout")
    registry, signer = Registry(folder / "registry"), key_in(folder)
    (folder / "signing.pub").write_text(signer.public_text)
    good = fitted()
    # Another file each, which computes the same.
    for number in (1, 2):
        entered(registry, f"v{number}", good * number, signer)
    entered(registry, "broken", np.roll(good, 1, axis=1), signer)
    broker = "mosquitto" if find_mosquitto() is not None else "embedded"
    processes: list[subprocess.Popen[bytes]] = []
    with running_broker(broker, folder / "broker") as running_one:
        try:
            for share, device in enumerate(DEVICES, start=1):
                (folder / device).mkdir()
                words = ["--broker", running_one.url, "--federation", "home", "--device-id", device]
                words += ["--data", "digits", "--share", f"{share}/{len(DEVICES)}", "--tier", "1"]
                words += ["--state-dir", str(folder / device), "--trust", str(folder / "signing.pub")]
                with (folder / device / "client.log").open("wb") as log:
                    command = [sys.executable, "-m", "edge_client.cli", "run", *words]
                    processes.append(subprocess.Popen(command, stdout=log, stderr=log))
            yield Field(running_one.url, folder, registry)
        finally:
            for process in processes:
                end_device(process)


def test_a_rollout_whose_server_is_killed_goes_on_with_the_same_command(field: Field) -> None:
    """The first of these tests: after it every device serves v1."""
    words = ("--watch", "0.5")
    with running(first := Server(field, "v1", *words)):
        first.until(lambda value: value.get("status") == "kept")
    canary = {device for device, version in field.serving().items() if version}
    assert len(canary) == 1
    with running(second := Server(field, "v1", *words)):
        summary = second.ended()
    assert (summary["outcome"], second.process.returncode) == ("finished", 0)
    assert [group["devices"] for group in summary["groups"]] == [1, 1]
    assert set(field.serving().values()) == {"v1"}
    assert field.registry.active("home") == "v1"
    # The canary had its model already, and was not made to do it again.
    log = (field.folder / canary.pop() / "client.log").read_text()
    assert log.count("version v1: switched") == 1


def test_a_model_that_fails_in_use_reaches_the_canary_alone_and_is_rolled_back_with_nobodys_help(
    field: Field,
) -> None:
    with running(server := Server(field, "v2", "--watch", "10")):
        device = server.until(lambda value: value.get("status") == "watching")["device"]
        assert field.serving()[device] == "v2"
        # What serves it fails at every other request.
        served = field.slots(device).current()
        assert served is not None
        write_health(served.folder, Health(digest=served.model.digest, starts=1, requests=40, errors=20))
        summary = server.ended()
    assert (summary["outcome"], server.process.returncode) == ("stopped", 1)
    assert summary["devices"][device] == "rolled back"
    assert field.switches("v2") == {device}
    assert set(field.serving().values()) == {"v1"}
    assert field.registry.active("home") == "v1"


def test_a_model_that_answers_wrongly_is_never_switched_to(field: Field) -> None:
    with running(server := Server(field, "broken", "--watch", "0.5")):
        summary = server.ended()
    assert summary["outcome"] == "stopped"
    assert sorted(summary["devices"].values()) == ["refused", "waiting"]
    assert field.switches("broken") == set()
    refused = next(line for line in server.said if '"refused"' in line)
    assert json.loads(refused)["report"]["cause"] == "accuracy"
