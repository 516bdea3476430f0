"""The MQTT channel: requests on one topic, answers on the other, and reconnects."""

import json
import queue
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edge_client.inference.service.metrics import RequestMetrics
from edge_client.inference.service.model_source import FileSource
from edge_client.inference.service.mqtt import MqttChannel
from edge_client.inference.service.predictor import Predictor
from edge_client.transport.broker_link import Arrived, LinkUp, parse_address
from edge_client.transport.mqtt_client import Link
from edge_server.transport.broker.launch import RunningBroker, running_broker
from schemas.topics import PredictTopic
from tests.edge_client.inference.test_onnx_model import write_model

ANSWERS = str(PredictTopic("home", "pi", "answer"))


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with running_broker("embedded", tmp_path_factory.mktemp("broker")) as running:
        yield running


class Asker:
    """Another client of the broker."""

    def __init__(self, url: str) -> None:
        self._inbox: Any = queue.SimpleQueue()
        self.link = Link(parse_address(url), self._inbox, client_id="asker", filters=(ANSWERS,))
        self.link.open()
        self.until(LinkUp)

    def until(self, kind: type) -> Any:
        while True:
            event = self._inbox.get(timeout=60)
            if isinstance(event, kind):
                return event

    def ask(self, body: bytes) -> dict[str, Any]:
        self.link.publish(str(PredictTopic("home", "pi", "request")), body)
        arrived = self.until(Arrived)
        assert arrived.topic == ANSWERS
        return dict(json.loads(arrived.payload))


@pytest.fixture
def asker(broker: RunningBroker, tmp_path: Path) -> Iterator[Asker]:
    url = f"mqtt://127.0.0.1:{broker.port}"
    predictor = Predictor(FileSource(write_model(tmp_path / "model.onnx")), RequestMetrics())
    predictor.refresh()
    channel = MqttChannel(parse_address(url), predictor, federation="home", device="pi", max_body=10_000)
    connected = queue.SimpleQueue[None]()
    handle = channel.loop.handle

    def watched_handle(event: Any) -> None:
        handle(event)
        if isinstance(event, LinkUp):
            connected.put(None)

    channel.loop.handle = watched_handle
    channel.open()
    connected.get(timeout=60)
    client = Asker(url)
    yield client
    client.link.close()
    channel.close()


def test_a_request_is_answered_under_its_own_id(asker: Asker) -> None:
    answer = asker.ask(b'{"pixels": [[0, 9, 0]], "top": 2, "id": "channel"}')
    assert [entry["name"] for entry in answer["results"][0]["top"]] == ["bee", "ant"]
    assert answer["id"] == "channel"


def test_invalid_requests_are_answered_and_the_service_stays_up(asker: Asker) -> None:
    assert "it is not an image" in asker.ask(b"no image")["error"]
    assert "takes images of 1x1x3" in asker.ask(b'{"pixels": [[1]], "id": 7}')["error"]
    assert "at most 10000 bytes" in asker.ask(b"x" * 10_001)["error"]
    # sha256 of "no image", first 16 digits: the id of a request without one.
    assert asker.ask(b"no image")["id"] == "453361fd925712bb"
    assert asker.ask(b'{"pixels": [[0, 9, 0]]}')["results"][0]["top"][0]["name"] == "bee"
