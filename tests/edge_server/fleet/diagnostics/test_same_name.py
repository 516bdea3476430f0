"""Two commands that ask devices as one operator: the earlier one ends, even if the broker gives no reason."""

from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

import pytest

from edge_client.transport import mqtt_client
from edge_client.transport.broker_link import LinkDown, parse_address
from edge_server.fleet.diagnostics.inquiry import Terms
from edge_server.fleet.diagnostics.operator import OperatorConnection, Selection
from edge_server.transport.broker.launch import find_mosquitto, running_broker
from schemas.errors import EdgeError
from schemas.messages.remote import Diagnostic

DEADLINE_S = 60


@pytest.mark.parametrize("kind", ["embedded", "mosquitto"])
def test_one_of_two_commands_of_an_operator_ends(kind: str, tmp_path: Path, monkeypatch) -> None:
    if kind == "mosquitto" and find_mosquitto() is None:
        pytest.skip("no mosquitto on this machine")
    monkeypatch.setattr(mqtt_client, "FIRST_DELAY_S", 0.1)
    with running_broker(kind, tmp_path / "broker") as broker, ThreadPoolExecutor(2) as pool:
        terms = Terms(Diagnostic.LOGS)
        commands = [
            OperatorConnection(
                parse_address(broker.url), "home", Selection(names=("pi",)), terms, patience_s=DEADLINE_S
            )
            for _ in range(2)
        ]
        running = [pool.submit(command.run) for command in commands]
        try:
            with pytest.raises(EdgeError, match="another command asks devices as this operator"):
                next(as_completed(running, timeout=DEADLINE_S)).result()
        finally:
            for command in commands:
                command.loop.inbox.put(LinkDown("the test is over", lasting=True))
