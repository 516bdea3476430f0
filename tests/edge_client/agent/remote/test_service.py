"""The service answers what arrives on its topic, and leaves other messages to others."""

import json
import queue
import sys
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.lazy_services import LazyDiagnostics
from edge_client.agent.remote import collection
from edge_client.agent.remote.collection import DoctorProcess
from edge_client.agent.session.state import Session
from edge_client.agent.settings import RemoteSettings
from edge_client.transport.broker_link import Arrived
from schemas import messages
from schemas.errors import PeerError
from schemas.messages.remote import Diagnostic, DiagnosticObstacle
from schemas.topics import Channel, DeviceTopic, parse_topic
from tests.edge_client.agent.births import device_settings
from tests.schemas.examples import MESSAGES_BY_KIND

TOPIC = DeviceTopic("home", "pi-3", Channel.DOWN_FLEET)


class Sent:
    """A messenger that keeps what is published."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def publish(self, channel: Channel, message: Any) -> None:
        assert channel is Channel.UP_FLEET
        self.messages.append(message)


class Board:
    """The diagnostics of one device, without a broker."""

    def __init__(self, state: Path, *, enabled: bool = True) -> None:
        settings = device_settings(state, device="pi-3", remote=RemoteSettings(enabled))
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.sent = Sent()
        self.service = LazyDiagnostics(settings, self.inbox, self.sent, root=Path("/"))  # type: ignore[arg-type]

    def ask(self, what: Diagnostic, **fields: Any) -> bool:
        request = messages.DiagnosticRequest(
            **{"federation": "home", "device": "pi-3", "request": "1" * 16, "what": what, **fields}
        )
        return self.service.receive(
            parse_topic(str(TOPIC)), Arrived(str(TOPIC), messages.encode_message(request))
        )

    def answer(self) -> dict[str, Any]:
        self.service.handle(self.inbox.get(timeout=60))
        parts = [message for message in self.sent.messages if isinstance(message, messages.DiagnosticPart)]
        return json.loads("".join(part.text for part in parts))


def test_a_profile_is_collected_and_sent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    board = Board(tmp_path)
    assert board.ask(Diagnostic.PROFILE)
    assert isinstance(board.sent.messages[0], messages.DiagnosticReceipt)
    assert board.answer()["profile"]["profile"]["cores"] >= 1
    assert "an operator asks for diagnostics" in caplog.text


def test_the_checks_run_in_a_process_beside_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = [sys.executable, "-c", "import os; os.abort()"]
    monkeypatch.setattr(collection, "doctor_command", lambda _: crashing)
    board = Board(tmp_path)
    board.ask(Diagnostic.DOCTOR)
    assert "SIGABRT" in board.answer()["doctor"][0]["detail"]


def test_an_owner_who_says_no_is_obeyed(tmp_path: Path) -> None:
    board = Board(tmp_path, enabled=False)
    for what in Diagnostic:
        board.ask(what)
    assert {message.obstacle for message in board.sent.messages} == {DiagnosticObstacle.DISABLED}
    assert "owner" in board.sent.messages[0].detail
    assert board.inbox.empty()


def test_a_collection_that_fails_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the secret reason")

    monkeypatch.setattr(collection.Collector, "collect", fail)
    board = Board(tmp_path)
    board.ask(Diagnostic.LOGS)
    board.service.handle(board.inbox.get(timeout=60))
    refusal = board.sent.messages[-1]
    assert isinstance(refusal, messages.DiagnosticRefusal)
    assert refusal.obstacle is DiagnosticObstacle.FAILED
    assert "secret" not in refusal.detail


@pytest.mark.parametrize("fields", [{"federation": "another"}, {"device": "pi-4"}])
def test_requests_to_others_are_refused(tmp_path: Path, fields: dict[str, str]) -> None:
    with pytest.raises(PeerError):
        Board(tmp_path).ask(Diagnostic.LOGS, **fields)


def test_other_messages_and_topics_are_left_to_others(tmp_path: Path) -> None:
    board = Board(tmp_path)
    offer = Arrived(str(TOPIC), messages.encode_message(MESSAGES_BY_KIND["model-offer"]))
    assert not board.service.receive(TOPIC, offer)
    assert not board.service.receive(DeviceTopic("home", "pi-3", Channel.DOWN), offer)
    board.service.tick(0.0, Session("home", "pi-3"))
    board.service.stop()


def test_nothing_is_left_of_a_process_that_collects_when_the_agent_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[DoctorProcess] = []

    class Watched(DoctorProcess):
        def __init__(self, command: list[str]) -> None:
            super().__init__(command)
            begun.append(self)

    hanging = [sys.executable, "-c", "import threading; threading.Event().wait()"]
    monkeypatch.setattr(collection, "DoctorProcess", Watched)
    monkeypatch.setattr(collection, "doctor_command", lambda _: hanging)
    board = Board(tmp_path)
    board.ask(Diagnostic.DOCTOR)
    board.service.stop()
    assert "doctor" in json.loads(board.inbox.get(timeout=60).text)
    process = begun[0].commands.process
    assert process is None or process.returncode is not None
