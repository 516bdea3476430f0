"""A training run and a rollout over the same broker: neither minds what is said to the other."""

from edge_server.coordinator.intake import Intake
from schemas.topics import Channel, DeviceTopic


def test_a_training_server_leaves_alone_what_is_said_to_a_rollout() -> None:
    # It has nothing at all: whatever it did with the message would fail.
    intake = object.__new__(Intake)
    intake.take(DeviceTopic("home", "pi", Channel.UP_ROLLOUT), b"whatever it may be")
