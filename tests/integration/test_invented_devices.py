"""A client of a broker without access control invents thousands of devices."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.system.logging.setup import MAX_DEVICES, LimitedHandler
from edge_client.transport.broker_link import BrokerAddress
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, demo_config
from tests.integration.device_threads import devices
from tests.mqtt_clients import connected_client

GHOSTS, MALFORMED = 1500, 1500
CARD = {"source": "digits", "examples": 10, "input_shape": [1, 8, 8], "num_classes": 10}
DEVICES = "fed/v1/test/devices"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """The text that a process would write to its log."""
    handler, stream = LimitedHandler(), io.StringIO()
    handler.setStream(stream)
    handler.setLevel(logging.WARNING)
    logging.getLogger().addHandler(handler)
    yield stream
    logging.getLogger().removeHandler(handler)


def flood(address: BrokerAddress) -> None:
    """Publish retained births of devices that do not exist, and malformed messages of others."""
    with connected_client(address.host, address.port) as client:
        for number in range(GHOSTS):
            name = f"ghost-{number}"
            birth = {"kind": "birth", "federation": "test", "device": name, "session": 1, "data": CARD}
            last = client.publish(f"{DEVICES}/{name}/up/birth", json.dumps(birth), qos=1, retain=True)
        for number in range(MALFORMED):
            last = client.publish(f"{DEVICES}/junk-{number}/up/control", b'{"kind": "gossip"}', qos=1)
        last.wait_for_publish(DEADLINE_S)


@ONE_BROKER
def test_a_run_starts_and_ends_with_its_real_devices(
    serve, address: BrokerAddress, tmp_path: Path, written: io.StringIO
) -> None:
    config = demo_config(rounds=1, **{"clients.num-clients": 2, "start-clients": 2, "deliver": "none"})
    run = serve(config)
    run.watched.until(lambda now: not now.no_link)
    flood(address)
    with devices(config, address, tmp_path / "devices") as ends:
        assert run.finished().outcome == "finished"
        assert {end.result(timeout=30) for end in ends} == {"finished"}
    (record,) = run.server.reporter.counters.history
    assert set(record.selected) == set(record.completed) == set(run.server.driver.federation.fleet.devices)
    assert len(record.selected) == 2
    # At most two kinds of lines: refused unknown messages and new devices that are not planned.
    assert 0 < len(written.getvalue().splitlines()) <= 2 * (MAX_DEVICES + 2)
