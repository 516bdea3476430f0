"""A device between two runs, or at a broker without a server."""

import logging
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, cast

import pytest

from edge_client.agent.session.events import RunEnded
from edge_client.agent.session_runner import SessionRunner
from edge_client.transport.broker_link import Arrived, LinkUp
from edge_server.fleet.service import FederationLink
from edge_server.fleet.settings.service import ServedFederation
from schemas.messages import BlobRequest, FederationEnd, RoundAnnouncement, encode_message
from schemas.topics import StateTopic, parse_topic
from tests.edge_client.agent.births import Births

END = FederationEnd(federation="home", run="r", outcome="finished", rounds=3)
ROUND = RoundAnnouncement(federation="home", run="r", round=1, rounds=3, phase="training", selected=2)


class Idle(Births):
    """A device whose questions are counted."""

    asked = 0

    def publish(self, channel: Any, message: Any, *, retain: bool = False) -> None:
        self.asked += isinstance(message, BlobRequest)


def test_a_device_of_a_served_fleet_without_a_run_does_not_warn_either(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`edge-server serve` answers the device's question."""
    service = FederationLink(ServedFederation(name="home"), SimpleQueue())
    sent: list[tuple[str, bytes]] = []
    service.connection.link.publish = lambda topic, payload, **_: sent.append((topic, payload))  # type: ignore[method-assign, assignment]
    device = Idle(tmp_path)
    device.announcer.on_connected(LinkUp(1, None), 0.0)
    question = encode_message(device.presence.probe())
    service.receive(Arrived("fed/v1/home/devices/pi/up/control", question))
    ((topic, answer),) = sent
    assert topic == "fed/v1/home/devices/pi/down/fleet"
    with caplog.at_level(logging.INFO):
        assert device.announcer.receive(parse_topic(topic), Arrived(topic, answer))
        for now in range(1000):
            device.announcer.tick(float(now), cast(Any, None))
    assert "no server has answered" not in caplog.text
    assert caplog.text.count("waiting for the next one") == 1
    # A server that has forgotten the device hears of it.
    assert 15 <= device.asked <= 18


@pytest.mark.parametrize(("message", "warned"), [(END, False), (ROUND, True)])
def test_a_device_between_runs_does_not_warn_that_no_server_answers(
    message: FederationEnd | RoundAnnouncement, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    announcer = Idle(tmp_path).announcer
    announcer.on_connected(LinkUp(1, None), 0.0)
    topic = str(StateTopic("home"))
    with caplog.at_level(logging.INFO):
        announcer.receive(parse_topic(topic), Arrived(topic, encode_message(message), retained=True))
        for now in range(1000):
            announcer.tick(float(now), cast(Any, None))
    assert ("no server has answered" in caplog.text) is warned
    assert ("waiting for the next one" in caplog.text) is not warned


def test_a_device_says_how_a_run_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    runner = cast(SessionRunner, SimpleNamespace(outcome=None))
    with caplog.at_level(logging.INFO):
        SessionRunner.execute(runner, RunEnded(END.model_copy(update={"outcome": "interrupted"})))
    assert caplog.messages == ["run r has ended: interrupted"]
    assert runner.outcome == "interrupted"
