"""A training run, rollouts and operators on the same broker ignore each other's messages."""

import pytest

from edge_server.coordinator.gateway.intake import read_below
from edge_server.coordinator.intake import Intake
from edge_server.rounds.gateway.state import Gateway
from schemas.topics import Channel, DeviceTopic

CHANNELS = (Channel.UP_ROLLOUT, Channel.UP_FLEET)


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_training_server_ignores_messages_to_others(channel: Channel) -> None:
    # The intake has no attributes, so any use of the message would fail.
    intake = object.__new__(Intake)
    intake.take(DeviceTopic("home", "pi", channel), b"any payload")


@pytest.mark.parametrize("channel", CHANNELS)
def test_a_gateway_ignores_messages_to_others(channel: Channel) -> None:
    topic = DeviceTopic("home", "barn.pi", channel)
    assert read_below(topic, b"any payload", Gateway("home", "barn")) is None
