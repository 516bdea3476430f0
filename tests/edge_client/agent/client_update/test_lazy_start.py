"""The agent's access to updates: what a client without a launcher answers, and what belongs to others."""

import queue
from pathlib import Path
from typing import Any

import pytest

from edge_client.agent.lazy_services import LazyClientUpdate
from edge_client.transport.broker_link import Arrived
from schemas.errors import PeerError
from schemas.messages import ClientReport, ClientWithdrawal, ModelWithdrawal, encode_message
from schemas.topics import Channel, DeviceTopic
from tests.edge_client.agent.births import device_settings

TOPIC = DeviceTopic("home", "pi", Channel.DOWN_FLEET)
WITHDRAWAL = ClientWithdrawal(federation="home", device="pi", rollout="r-1", version="0.2.0")


class Messages:
    """Stands for the agent's messenger."""

    def __init__(self) -> None:
        self.sent: list[tuple[Channel, Any]] = []

    def publish(self, channel: Channel, message: Any) -> None:
        self.sent.append((channel, message))


def service(state: Path, root: Path | None, messages: Messages) -> LazyClientUpdate:
    messenger: Any = messages
    return LazyClientUpdate(device_settings(state, install_root=root), queue.SimpleQueue(), messenger)


def test_a_client_without_a_launcher_says_so(tmp_path: Path) -> None:
    messages = Messages()
    part = service(tmp_path, None, messages)
    assert part.receive(TOPIC, Arrived(str(TOPIC), encode_message(WITHDRAWAL)))
    ((channel, report),) = messages.sent
    assert isinstance(report, ClientReport)
    assert (channel, report.stage, report.cause) == (Channel.UP_FLEET, "refused", "no-launcher")
    assert "edge-client install" in report.detail


def test_a_folder_that_cannot_be_used_ends_no_client(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    (tmp_path / "client" / "blobs").touch()
    messages = Messages()
    part = service(tmp_path, tmp_path / "client", messages)
    part.receive(TOPIC, Arrived(str(TOPIC), encode_message(WITHDRAWAL)))
    assert "cannot be used" in messages.sent[0][1].detail


def test_messages_of_others_are_left_to_them(tmp_path: Path) -> None:
    part = service(tmp_path, None, Messages())
    other = ModelWithdrawal(federation="home", device="pi", rollout="r-1", version="v")
    assert not part.receive(TOPIC, Arrived(str(TOPIC), encode_message(other)))
    down = DeviceTopic("home", "pi", Channel.DOWN_ROLLOUT)
    assert not part.receive(down, Arrived(str(down), encode_message(other)))
    with pytest.raises(PeerError):
        part.receive(TOPIC, Arrived(str(TOPIC), b"junk"))


def test_a_withdrawal_of_an_unknown_rollout_is_answered(tmp_path: Path) -> None:
    (tmp_path / "client").mkdir()
    messages = Messages()
    part = service(tmp_path, tmp_path / "client", messages)
    part.receive(TOPIC, Arrived(str(TOPIC), encode_message(WITHDRAWAL)))
    report = messages.sent[0][1]
    assert (report.stage, report.cause) == ("rolled-back", "withdrawn")
    elsewhere = WITHDRAWAL.model_copy(update={"device": "pi-2"})
    with pytest.raises(PeerError, match="pi-2"):
        part.receive(TOPIC, Arrived(str(TOPIC), encode_message(elsewhere)))
