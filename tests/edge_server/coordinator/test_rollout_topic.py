"""A training run, rollouts and operators on the same broker ignore each other's messages."""

import pytest

from edge_server.coordinator.gateway.intake import read_below
from edge_server.coordinator.intake import Intake
from edge_server.rounds.gateway.state import Gateway
from schemas.messages import encode_message
from schemas.topics import Channel, DeviceTopic
from tests.schemas.examples import MESSAGES_BY_KIND

CHANNELS = (Channel.UP_ROLLOUT, Channel.UP_FLEET)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_training_server_ignores_messages_to_others(channel: Channel) -> None:
    # The intake has no attributes, so any use of the message would fail.
    intake = object.__new__(Intake)
    intake.take(DeviceTopic("home", "pi", channel), b"any payload")


def test_a_gateway_ignores_messages_to_rollouts_within_its_site() -> None:
    gateway = Gateway("home", "barn")
    assert read_below(DeviceTopic("home", "barn.pi", Channel.UP_ROLLOUT), b"any payload", gateway) is None
    report = MESSAGES_BY_KIND["model-report"].model_copy(update={"device": "barn.pi"})
    topic = DeviceTopic("home", "barn.pi", Channel.UP_FLEET)
    assert read_below(topic, encode_message(report), gateway) is None
