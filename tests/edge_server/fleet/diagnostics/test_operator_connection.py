"""What an operator's command says of messages that it cannot read."""

import logging

import pytest

from edge_client.transport.broker_link import Arrived, parse_address
from edge_server.fleet.diagnostics.inquiry import Terms
from edge_server.fleet.diagnostics.operator import OperatorConnection, Selection
from schemas.messages.remote import Diagnostic
from schemas.topics import Channel, DeviceTopic


def test_messages_that_cannot_be_read_are_logged_once_for_each_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    address = parse_address("mqtt://127.0.0.1:1")
    command = OperatorConnection(
        address, "home", Selection(names=("pi",)), Terms(Diagnostic.LOGS), patience_s=9
    )
    command.loop.tick = lambda now: None
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            command.loop.inbox.put(Arrived(str(DeviceTopic("home", "pi", Channel.UP_FLEET)), b"{"))
            command.loop.turn()
    assert command.loop.ignored.total() == 3
    assert [record.message[:9] for record in caplog.records] == ["ignored ("]
