"""A training run and a rollout on the same broker ignore each other's messages."""

from edge_server.coordinator.intake import Intake
from schemas.topics import Channel, DeviceTopic


def test_a_training_server_ignores_rollout_messages() -> None:
    # The intake has no attributes, so any use of the message would fail.
    intake = object.__new__(Intake)
    intake.take(DeviceTopic("home", "pi", Channel.UP_ROLLOUT), b"any payload")
