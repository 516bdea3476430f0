"""Two agents with the same name and state (a copied SD card): the later one ends, the run continues."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from edge_client.agent.announcer import Announcer
from edge_client.transport import mqtt_client
from edge_client.transport.broker_link import BrokerAddress
from edge_server.cli.demo import device_name
from schemas.errors import ConfigError
from tests.integration.conftest import DEADLINE_S, demo_config
from tests.integration.device_threads import _agent

WHO = (("first", 0), ("copy", 0), ("other", 1))
_of_version_5 = mqtt_client.Link.__init__


def _of_version_3(made: mqtt_client.Link, *args: object, **named: object) -> None:
    """A link that speaks MQTT 3.1.1 from the start."""
    _of_version_5(made, *args, **named)  # type: ignore[arg-type]
    made.version = MQTTProtocolVersion.MQTTv311
    made.client = made.prepare_client()


@pytest.mark.parametrize(
    ("broker", "version"), [("embedded", "5"), ("mosquitto", "3.1.1")], indirect=["broker"]
)
def test_the_later_of_two_devices_with_the_same_name_ends_and_the_run_continues(
    serve, address: BrokerAddress, tmp_path: Path, monkeypatch, version: str
) -> None:
    monkeypatch.setattr(mqtt_client, "FIRST_DELAY_S", 0.4)
    if version == "3.1.1":
        monkeypatch.setattr(mqtt_client.Link, "__init__", _of_version_3)
    config = demo_config(rounds=1, **{"clients.num-clients": 2, "start-clients": 2})
    agents = [
        _agent(config, address, tmp_path / where, index) for where, index in (("a", 0), ("b", 0), ("c", 1))
    ]
    run = serve(config)
    with ThreadPoolExecutor(3) as pool:
        try:
            first = pool.submit(agents[0].run)
            run.watched.until(lambda now: len(now.devices) == 1)
            with pytest.raises(ConfigError, match=f"another device is called {device_name(0)}"):
                pool.submit(agents[1].run).result(timeout=DEADLINE_S)
            assert any("shares its name with another" in note for note in run.server.reporter.counters.notes)
            other = pool.submit(agents[2].run)
            assert run.finished().outcome == "finished"
            assert [first.result(timeout=30), other.result(timeout=30)] == ["finished", "finished"]
        finally:
            for agent in agents:
                agent.stop()


@pytest.mark.parametrize("broker", ["embedded", "mosquitto"], indirect=True)
def test_without_a_server_the_later_of_two_devices_with_the_same_name_ends(
    address: BrokerAddress, tmp_path: Path, monkeypatch
) -> None:
    """Mosquitto 2.0.11 closes connections without a reason; the other's birth gives it away."""
    monkeypatch.setattr(mqtt_client, "FIRST_DELAY_S", 0.2)
    connected = threading.Event()
    connect = Announcer.on_connected

    def noted(announcer: Announcer, *given: Any) -> None:
        connect(announcer, *given)
        connected.set()

    monkeypatch.setattr(Announcer, "on_connected", noted)
    config = demo_config()
    agents = [first := _agent(config, address, tmp_path / "a", 0)]
    with ThreadPoolExecutor(2) as pool:
        try:
            running = pool.submit(first.run)
            assert connected.wait(DEADLINE_S)
            # Not before: its sessions count from the millisecond in which it was made.
            agents.append(later := _agent(config, address, tmp_path / "b", 0))
            ending = pool.submit(later.run)
            with pytest.raises(ConfigError, match=f"another device is called {device_name(0)}.*came first"):
                ending.result(timeout=DEADLINE_S)
            assert not running.done()
        finally:
            for agent in agents:
                agent.stop()
