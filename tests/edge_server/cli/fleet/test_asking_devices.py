"""`doctor`, `logs`, `profile` and `diagnose` ask real devices over a real broker."""

import contextlib
import json
import logging
import queue
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edge_client.agent.agent import Agent
from edge_client.agent.remote import collection
from edge_client.agent.settings import AgentSettings, RemoteSettings
from edge_client.data.dataset import make_labelled_data
from edge_client.data.local import LocalData
from edge_client.system.logging.setup import RecentLog
from edge_client.transport.broker_link import parse_address
from edge_server.cli.commands.fleet.logs import crash_lines
from edge_server.cli.main import main
from edge_server.fleet.diagnostics import inquiry, operator
from edge_server.fleet.diagnostics.answers import log_lines
from edge_server.fleet.diagnostics.inquiry import Status, Terms
from edge_server.fleet.diagnostics.remote_part import RemotePart
from edge_server.fleet.part import Part, ServiceContext
from edge_server.fleet.service import FleetService
from edge_server.fleet.settings.service import ServedFederation, ServiceSettings
from edge_server.storage import audit_log
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from edge_server.transport.broker.launch import running_broker
from schemas.messages import Death, encode_message
from schemas.messages.remote import Diagnostic
from schemas.values import CapabilityProfile
from tests.mqtt_clients import connected_client

DEADLINE_S = 30
CHECKS = {
    "pi-1": [{"check": "disk", "level": "ok", "detail": "5 GB", "remedy": ""}],
    "pi-2": [
        {"check": "disk", "level": "failure", "detail": "no room\n\x1b[2J", "remedy": "make room"},
        {"check": "clock", "level": "warning", "detail": "slow", "remedy": "set it"},
    ],
}


def agent(name: str, url: str, folder: Path, *, enabled: bool = True) -> Agent:
    state = folder / name
    state.mkdir()
    settings = AgentSettings(
        federation="home",
        device=name,
        address=parse_address(url),
        state=state,
        source="folder:/srv/photos",
        profile=CapabilityProfile(),
        labels={"site": "barn"} if name != "pi-3" else {},
        telemetry_every_s=0,
        remote=RemoteSettings(enabled),
    )
    line = f"cannot read /srv/photos/a.png on {name}; password=hunter"
    RecentLog(state).emit(logging.LogRecord("edge", logging.WARNING, "f.py", 1, line, (), None))
    images, labels = np.zeros((4, 1, 2, 2), np.float32), np.array([0, 1, 0, 1])
    data = make_labelled_data(images, labels)
    return Agent(settings, LocalData(data, data))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with two devices at the barn, one whose owner says no, and one that is gone."""
    folder = tmp_path_factory.mktemp("devices")
    with pytest.MonkeyPatch.context() as patch, running_broker("embedded", folder / "broker") as running:

        def checks(settings: AgentSettings) -> list[str]:
            return [sys.executable, "-c", f"print({json.dumps(CHECKS.get(settings.device, []))!r})"]

        patch.setattr(collection, "doctor_command", checks)
        patch.setattr(inquiry, "SILENT_S", 8.0)
        patch.setattr(operator, "GATHER_S", 1.5)
        say_goodbye(running.host, running.port)
        agents = [
            agent(name, running.url, folder, enabled=name != "pi-3") for name in ("pi-1", "pi-2", "pi-3")
        ]
        threads = [threading.Thread(target=each.run) for each in agents]
        for thread in threads:
            thread.start()
        await_births(running.host, running.port, {"pi-1", "pi-2", "pi-3"})
        yield running.url
        for each in agents:
            each.stop()
        for thread in threads:
            thread.join(DEADLINE_S)
            assert not thread.is_alive()


def await_births(host: str, port: int, names: set[str]) -> None:
    """Wait until the broker retains the births of these devices."""
    born: queue.SimpleQueue[str] = queue.SimpleQueue()
    births = "fed/v1/home/devices/+/up/birth"
    with connected_client(host, port, births, hear=lambda topic, _: born.put(topic.split("/")[4])):
        left = set(names)
        while left:
            left.discard(born.get(timeout=DEADLINE_S))


def say_goodbye(host: str, port: int) -> None:
    death = encode_message(Death(federation="home", device="pi-4", session=1))
    with connected_client(host, port) as client:
        sent = client.publish("fed/v1/home/devices/pi-4/up/birth", death, qos=1, retain=True)
        sent.wait_for_publish(DEADLINE_S)


@pytest.fixture
def service(broker: str, tmp_path: Path) -> ServiceFolder:
    folder = ServiceFolder(tmp_path / "service")
    folder.path.mkdir()
    folder.settings.write_text(f'[[federations]]\nname = "home"\nbroker = "{broker}"\n')
    return folder


def test_doctor_has_a_line_per_problem_and_per_device_without_an_answer(service, capsys):
    code = main(["doctor", "pi-1", "pi-2", "pi-3", "pi-4", "pi-9", "--service", str(service.path)])
    lines = {tuple(line.split()[:3]): line for line in capsys.readouterr().out.splitlines()}
    assert code == 1
    assert ("pi-1", "ok", "-") in lines
    assert "make room" in lines["pi-2", "failure", "disk"]
    assert "\x1b" not in lines["pi-2", "failure", "disk"]
    assert ("pi-2", "warning", "clock") in lines
    assert "owner" in lines["pi-3", "disabled", "-"]
    assert ("pi-4", "offline", "-") in lines
    assert ("pi-9", "silent", "-") in lines
    (entry,) = audit_log.read_entries(service.audit)
    assert (entry.what, entry.after["devices"][0]) == ("diagnostics doctor", "pi-1")
    assert entry.who.startswith("local:")


def test_a_silent_device_that_the_inventory_lacks_may_be_a_mistyped_name(service, capsys):
    inventory = Inventory(service.inventory)
    inventory.add("home", "pi-1")
    inventory.close()
    assert main(["doctor", "pii-1", "--service", str(service.path)]) == 0
    assert "no answer; the inventory has no 'pii-1' (did you mean 'pi-1'?)" in capsys.readouterr().out


def test_devices_are_chosen_by_labels_and_the_operators_win(service, capsys):
    inventory = Inventory(service.inventory)
    for device in ("pi-2", "pi-3"):
        inventory.add("home", device)
    inventory.set_labels("home", "pi-2", {"site": "field"})
    inventory.set_labels("home", "pi-3", {"site": "barn"})
    inventory.close()
    code = main(["doctor", "--where", "site=barn", "--format", "json", "--service", str(service.path)])
    found = json.loads(capsys.readouterr().out)
    assert {device["device"]: device["status"] for device in found} == {
        "pi-1": "answered",
        "pi-3": "disabled",
    }
    assert code == 0


def test_no_chosen_device_is_said(service, capsys):
    assert main(["doctor", "--where", "site=nowhere", "--service", str(service.path)]) == 0
    assert "no connected device" in capsys.readouterr().out
    assert not service.audit.exists()


def test_logs_are_masked_and_recent(service, capsys):
    assert main(["logs", "pi-1", "--since", "1h", "--level", "warning", "--service", str(service.path)]) == 0
    shown = capsys.readouterr().out
    assert "WARNING cannot read <data>" in shown
    assert "hunter" not in shown
    assert next(iter(audit_log.read_entries(service.audit))).target == "home/pi-1"


def test_a_device_that_does_not_answer_is_a_failure_with_its_reason(service, capsys):
    for device, status in (("pi-3", "disabled"), ("pi-4", "offline")):
        assert main(["logs", device, "--service", str(service.path)]) == 1
        assert f"{device}: {status}" in capsys.readouterr().err


def test_profile_and_crash_are_shown_without_a_service_folder(broker, capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGE_SERVICE", str(tmp_path / "nowhere"))
    options = ["--broker", broker, "--federation", "home"]
    assert main(["profile", "pi-1", *options]) == 0
    assert "architecture" in capsys.readouterr().out
    assert main(["logs", "pi-1", "--crash", *options]) == 0
    assert "no unexpected end" in capsys.readouterr().out


def test_a_bundle_is_an_archive_of_documents_that_is_not_overwritten(service, tmp_path, capsys):
    path = tmp_path / "pi-2.tar.gz"
    command = ["diagnose", "pi-2", "--out", str(path), "--service", str(service.path)]
    assert main(command) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as file:
        names = {name.removeprefix("pi-2/") for name in file.getnames()}
        texts = [file.extractfile(name).read().decode() for name in file.getnames()]
    parts = {f"{part}.json" for part in ("answer", "doctor", "profile", "crash", "versions", "settings")}
    assert names == parts | {"logs.jsonl"}
    assert not any("hunter" in text or "/srv/photos" in text for text in texts)
    assert main(command) == 2
    assert "name another file" in capsys.readouterr().err


@contextlib.contextmanager
def served(folder: ServiceFolder, url: str) -> Iterator[RemotePart]:
    made: list[RemotePart] = []

    def parts(context: ServiceContext) -> tuple[Part, ...]:
        made.append(RemotePart(context))
        return tuple(made)

    settings = ServiceSettings(federations=(ServedFederation(name="home", broker=url),))
    service = FleetService(folder, settings, parts)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield made[0]
    finally:
        service.stop()
        thread.join(DEADLINE_S)


def test_the_service_asks_for_its_page(service, broker):
    with served(service, broker) as part:
        answer = part.request("home", "pi-2", Terms(Diagnostic.LOGS), who="user:anna")
        refused = part.request("home", "pi-3", Terms(Diagnostic.LOGS), who="user:anna")
        assert "<data>" in answer.result(DEADLINE_S).document["logs"][0]["message"]
        assert refused.result(DEADLINE_S).status is Status.DISABLED
    assert [(entry.who, entry.target) for entry in audit_log.read_entries(service.audit)] == [
        ("user:anna", "home/pi-2"),
        ("user:anna", "home/pi-3"),
    ]


def test_a_request_that_is_open_when_the_service_stops_is_cancelled(service, broker):
    with served(service, broker) as part:
        unanswered = part.request("home", "pi-9", Terms(Diagnostic.PROFILE), who="user:anna")
    assert unanswered.cancelled() or unanswered.result(0).status is Status.SILENT


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["logs", "pi-1", "--since", "yesterday"], "is not an age: write 90s"),
        (["logs", "pi/1"], "letters"),
        (["logs", "pi-1", "--lines", "9999"], "must be between 1 and 5000, not 9999"),
        (["doctor", "--where", "site = = barn"], "condition"),
        (["logs", "pi-1", "--service", "/nowhere"], "no service folder"),
        (["diagnose", "pi-1", "--out", "/nowhere/x.tar.gz"], "no such folder"),
        (["diagnose", "pi-1", "--out", "pi-1.zip"], "end its name with .tar.gz"),
    ],
)
def test_bad_input_is_one_line(words, said, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) == 1


def test_a_broker_that_cannot_be_reached_is_an_error(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("EDGE_SERVICE", str(tmp_path / "nowhere"))
    monkeypatch.setattr(operator, "CONNECT_S", 0.2)
    assert main(["logs", "pi-1", "--broker", "mqtt://127.0.0.1:1"]) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err


def test_hostile_lines_of_a_device_move_no_cursor():
    line = {"time": "\x1b[2J", "level": 7, "message": "a\nb\r\x1b]0;x", "exception": "x\n\x1b[1m"}
    shown = [*log_lines(line), *crash_lines({"at": "x", "cause": "\n", "text": "\x1b"}), *crash_lines(None)]
    assert all(text.isprintable() for text in shown)
