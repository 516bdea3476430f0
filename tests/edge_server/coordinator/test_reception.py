"""A server answers devices before it has loaded what it trains with."""

import subprocess
import sys

import pytest

from edge_client.transport.broker_link import Arrived, LinkUp, parse_address
from edge_server.config.load import load_config
from edge_server.coordinator.reception import NO_BLOB, Reception
from schemas.messages import BlobRequest, Refusal, decode_message, encode_message
from schemas.topics import Channel, DeviceTopic

UP = str(DeviceTopic("home", "pi", Channel.UP))


class LinkDouble:
    def __init__(self) -> None:
        self.sent: list = []

    def open(self) -> None:
        pass

    def publish(self, topic: str, payload: bytes) -> None:
        self.sent.append((topic, decode_message(payload)))


def request(digest: str, device: str = "pi") -> bytes:
    return encode_message(BlobRequest(federation="home", device=device, digest=digest, first=0, count=1))


def test_it_answers_whether_a_server_is_there_and_keeps_the_rest_in_order() -> None:
    config = load_config("fedavg", ["federation.name=home", "data.source=digits"])
    reception = Reception(config, parse_address("mqtt://127.0.0.1:1"), None)
    reception.connection.link = link = LinkDouble()
    reception.open()
    events = [
        LinkUp(1, None),
        Arrived(UP, request(NO_BLOB)),
        Arrived(UP, request("1" * 64)),
        Arrived(UP, request(NO_BLOB, device="other")),
        Arrived(UP, b"nonsense"),
    ]
    for event in events:
        reception.inbox.put(event)
    assert reception.hand_over() == [events[0], *events[2:]]
    ((topic, answer),) = link.sent
    assert topic == str(DeviceTopic("home", "pi", Channel.DOWN))
    assert isinstance(answer, Refusal)
    assert (answer.reason, answer.digest) == ("unknown-blob", NO_BLOB)


@pytest.mark.parametrize(
    "module", ["edge_server.coordinator.launch", "edge_server.config.checks.combinations"]
)
def test_what_precedes_the_first_answer_imports_no_torch(module: str) -> None:
    code = f"import {module}, sys; from edge_server.config.load import load_config;"
    code += "load_config('attending', ['data.source=digits']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
