"""What is collected is masked and bounded, and a check that crashes ends nothing."""

import json
import logging
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from edge_client.agent.remote import collection
from edge_client.agent.settings import AgentSettings, RemoteSettings
from edge_client.system.crash_record import FOLDER, LAST
from edge_client.system.logging.setup import RecentLog
from edge_client.transport.broker_link import BrokerAddress, TlsFiles
from schemas.messages import DiagnosticRequest
from schemas.messages.remote import MAX_ANSWER_CHARS, Diagnostic
from schemas.values import CapabilityProfile

FINDINGS = '[{"check": "disk", "level": "warning", "detail": "1 GB", "remedy": "make room"}]'
QUIET = [sys.executable, "-c", f"print('{FINDINGS}')"]


def asking(what: Diagnostic, **terms: object) -> DiagnosticRequest:
    return DiagnosticRequest(federation="home", device="pi-3", request="0" * 16, what=what, **terms)


@pytest.fixture
def settings(tmp_path: Path) -> AgentSettings:
    photos = tmp_path / "own photos" / "cat"
    photos.mkdir(parents=True)
    (photos / "IMG 7.jpg").write_bytes(b"")
    return AgentSettings(
        federation="home",
        device="pi-3",
        address=BrokerAddress("broker", 8883, TlsFiles(ca=Path("ca.pem")), "me-myself", "hunter two"),
        state=tmp_path / "state",
        source=f"folder:{photos.parent}",
        profile=CapabilityProfile(),
        remote=RemoteSettings(data_root=None),
    )


def log_line(settings: AgentSettings, text: str, level: int = logging.INFO) -> None:
    RecentLog(settings.state).emit(logging.LogRecord("edge", level, "f.py", 1, text, (), None))


def test_a_bundle_has_every_part_and_none_of_the_secrets(settings: AgentSettings) -> None:
    photo = Path(settings.source.partition(":")[2]) / "cat" / "IMG 7.jpg"
    log_line(settings, f"cannot read {photo}")
    log_line(settings, "IMG 7.jpg is not a picture; hunter two was refused; password=abc")
    (settings.state / FOLDER).mkdir()
    crash = {"cause": "exception", "at": 1.0, "thread": "main", "text": f"ValueError: {photo}"}
    (settings.state / FOLDER / LAST).write_text(json.dumps(crash))
    text = collection.Collector(settings, doctor=collection.DoctorProcess(QUIET)).collect(
        asking(Diagnostic.BUNDLE)
    )
    found = json.loads(text)
    assert {"doctor", "logs", "profile", "crash", "versions", "settings"} <= found.keys()
    assert [finding["check"] for finding in found["doctor"]] == ["disk", "mqtt"]
    assert len(found["logs"]) == 2
    assert found["crash"]["text"] == "ValueError: <data>"
    for secret in ("own photos", "IMG 7", "hunter", "me-myself", "abc", str(settings.state)):
        assert secret not in text


def test_logs_are_chosen_by_age_level_and_number() -> None:
    lines = [
        {"time": f"2026-01-01T00:00:{second:02d}+00:00", "level": level, "message": str(second)}
        for second, level in enumerate(["info", "warning", "error", "info", "critical", "warning"])
    ]
    now = 1767225605.0
    chosen = collection.select_lines(lines, asking(Diagnostic.LOGS, level="warning"), now)
    assert [line["message"] for line in chosen] == ["1", "2", "4", "5"]
    chosen = collection.select_lines(lines, asking(Diagnostic.LOGS, since_s=2.0), now)
    assert [line["message"] for line in chosen] == ["3", "4", "5"]
    assert collection.select_lines(lines, asking(Diagnostic.LOGS, lines=1), now) == lines[-1:]


def test_of_too_many_lines_the_newest_are_kept() -> None:
    lines = [{"message": f"{number} " + "ä" * 200} for number in range(3_000)]
    text = collection.encode_bounded({"device": "pi-3", "logs": lines})
    assert len(text) <= MAX_ANSWER_CHARS
    assert text.isascii()
    found = json.loads(text)
    assert found["logs"][-1] == lines[-1]
    assert len(found["logs"]) + found["left_out"] == 3_000


def test_a_document_that_never_fits_says_so() -> None:
    text = collection.encode_bounded({"device": "pi-3", "doctor": [{"detail": "x" * 5_000}] * 1_000})
    assert json.loads(text) == {"device": "pi-3", "left_out": "it is too large"}


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV"),
        ("import sys; sys.exit('no such option')", "no such option"),
        ("print('{}')", "exit code 0"),
    ],
)
def test_checks_that_crash_are_a_finding(code: str, said: str) -> None:
    (finding,) = collection.DoctorProcess([sys.executable, "-c", code]).findings()
    assert finding["level"] == "failure"
    assert said in finding["detail"]


def test_checks_that_hang_are_ended_at_the_deadline() -> None:
    hanging = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    (finding,) = collection.DoctorProcess(hanging, longest_s=0.2).findings()
    assert "not done" in finding["detail"]


def test_checks_are_ended_with_the_agent() -> None:
    doctor = collection.DoctorProcess([sys.executable, "-c", "import threading; threading.Event().wait()"])
    found: list[dict] = []
    thread = threading.Thread(target=lambda: found.extend(doctor.findings()))
    thread.start()
    doctor.end()
    thread.join(20)
    assert not thread.is_alive()
    assert found[0]["level"] == "failure"


def test_the_command_of_the_checks_has_no_password(settings: AgentSettings) -> None:
    command = collection.doctor_command(settings)
    assert "mqtts://broker:8883" in command
    assert "--beside-agent" in command
    assert not any("hunter" in word for word in command)


@pytest.mark.parametrize(
    ("source", "path"),
    [
        ("csv:/srv/room.csv?label=open&labels=/srv/late.csv", "/srv/room.csv"),
        ("npz:/srv/digits.npz#train", "/srv/digits.npz"),
        ("csv:/srv/room.csv?labels=%2Fsrv%2Flate.csv", "/srv/late.csv"),
    ],
)
def test_the_paths_of_a_source_are_hidden(settings: AgentSettings, source: str, path: str) -> None:
    assert path in collection.hidden_by(replace(settings, source=source)).data


def test_a_source_without_a_path_hides_no_path(settings: AgentSettings) -> None:
    for source in ("digits", "MNIST", "python:module:function"):
        assert collection.hidden_by(replace(settings, source=source)).data == ()


def test_a_user_without_a_home_folder_is_no_obstacle(
    settings: AgentSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    assert "~" not in collection.hidden_by(settings).places.values()
