"""A training run and a rollout over the same broker: neither minds what is said to the other."""

from __future__ import annotations

from edge_client.transport.echo_test import Echo
from edge_server.coordinator.server import Server
from schemas.topics import Channel, DeviceTopic


def test_a_training_server_leaves_alone_what_is_said_to_a_rollout() -> None:
    # It has nothing but an echo that is not asked for: whatever else it did with the message would fail.
    server = object.__new__(Server)
    server._echo = Echo("fed/v1/home/server/echo", lambda payload: None)
    server._arrived(str(DeviceTopic("home", "pi", Channel.UP_ROLLOUT)), b"whatever it may be")
