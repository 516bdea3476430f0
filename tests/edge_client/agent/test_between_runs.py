"""A device between two runs, or at a broker without a server."""

import logging
from pathlib import Path
from typing import Any, cast

import pytest

from edge_client.transport.link_events import Arrived, LinkUp
from schemas.messages import FederationEnd, RoundAnnouncement, encode_message
from schemas.topics import StateTopic, parse_topic
from tests.edge_client.agent.test_earlier_server import Births

END = FederationEnd(federation="home", run="r", outcome="finished", rounds=3)
ROUND = RoundAnnouncement(federation="home", run="r", round=1, rounds=3, phase="training", selected=2)


class Idle(Births):
    """A device that publishes nothing but questions."""

    def publish(self, channel: Any, message: Any, *, retain: bool = False) -> None:
        pass


@pytest.mark.parametrize(("message", "warned"), [(END, False), (ROUND, True)])
def test_a_device_between_runs_does_not_warn_that_no_server_answers(
    message: FederationEnd | RoundAnnouncement, warned: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    announcer = Idle(tmp_path).announcer
    announcer.connected(LinkUp(1, None), 0.0)
    topic = str(StateTopic("home"))
    with caplog.at_level(logging.INFO):
        announcer.receive(parse_topic(topic), Arrived(topic, encode_message(message), retained=True))
        for now in range(1000):
            announcer.tick(float(now), cast(Any, None))
    assert ("no server has answered" in caplog.text) is warned
    assert ("waiting for the next one" in caplog.text) is not warned
