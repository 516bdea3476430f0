"""The edge node at a real broker: births, data, the will after a lost connection, a host's command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.transport.broker_link import parse_address
from edge_server.observability.integrations.sparkplug.service import Sparkplug, next_connection
from edge_server.transport.broker.launch import find_mosquitto, running_broker
from tests.edge_server.observability.integrations.home_assistant.field import Listener
from tests.edge_server.observability.integrations.home_assistant.moments import GARAGE, KITCHEN, snapshot
from tests.edge_server.observability.integrations.sparkplug.host import Host
from tests.edge_server.observability.integrations.sparkplug.record import GOLDEN

NBIRTH, NDEATH = "spBv1.0/Plant/NBIRTH/home", "spBv1.0/Plant/NDEATH/home"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with running_broker("auto", tmp_path / "broker") as running:
        yield running.url


class Control:
    """A host that checks all messages at the broker."""

    def __init__(self, url: str) -> None:
        self.listener, self.host, self._read = Listener(url, "spBv1.0/#", name="scada"), Host(), 0

    def until(self, topic: str) -> None:
        """Check all messages up to the next on this topic."""
        self.listener.until(lambda sent_to, payload: sent_to == topic)
        for message in self.listener.received[self._read :]:
            if "/NCMD/" not in message[0]:
                self.host.receive(*message)
        self._read = len(self.listener.received)


def test_a_node_sends_births_changes_and_rebirths_reconnects_and_leaves(url, tmp_path) -> None:
    numbers = tmp_path / "sparkplug-Plant-home"
    control, node = Control(url), Sparkplug("Plant", "home", parse_address(url), numbers)
    node.open()
    node.show(snapshot(KITCHEN, GARAGE))
    control.until("spBv1.0/Plant/DBIRTH/home/pi-4.kitchen")
    assert (control.host.bd_seq, control.host.values["Run/Round"]) == (0, 5)
    assert control.host.devices["pi-4.kitchen"]["Board/Temperature"] == 52.3
    node.show(snapshot(KITCHEN, round_number=6))
    control.until("spBv1.0/Plant/DDATA/home/pi-4.kitchen")
    assert (control.host.values["Run/Round"], control.host.devices["pi-4.kitchen"]["Round"]) == (6, 6)
    # A late host asks for a rebirth with Tahu's bytes; the junk before it is ignored.
    control.listener.link.publish("spBv1.0/Plant/NCMD/home", b"junk", qos=0)
    control.listener.link.publish("spBv1.0/Plant/NCMD/home", (GOLDEN / "rebirth.bin").read_bytes(), qos=0)
    control.until("spBv1.0/Plant/DBIRTH/home/pi-4.kitchen")
    assert (control.host.bd_seq, control.host.last_seq) == (0, 1)
    # A second connection with the same id ends the node's: the broker sends the will; the node reconnects.
    rival = Listener(url, name="home-sparkplug")
    rival.link.close()
    control.until(NDEATH)
    assert not control.host.online
    control.until("spBv1.0/Plant/DBIRTH/home/pi-4.kitchen")
    born_again = control.host.bd_seq
    assert control.host.online
    assert born_again is not None
    assert born_again > 0
    node.close()
    control.until(NDEATH)
    assert not control.host.online
    if find_mosquitto() is not None:
        control.until(NDEATH)  # the broker sends it once more: 6.4.25, "Disconnect with Will Message"
    # The next process continues the count.
    assert next_connection(numbers) == born_again + 1
    control.listener.link.close()


def test_no_message_is_retained(url, tmp_path) -> None:
    """5.4: births and deaths are not retained; a host that connects later asks for a rebirth."""
    control, node = Control(url), Sparkplug("Plant", "home", parse_address(url), tmp_path / "numbers")
    node.open()
    node.show(snapshot(KITCHEN))
    control.until("spBv1.0/Plant/DBIRTH/home/pi-4.kitchen")
    node.close()
    control.until(NDEATH)
    late = Listener(url, "spBv1.0/#", name="late")
    late.link.publish("spBv1.0/Plant/NCMD/none", b"")
    late.on("spBv1.0/Plant/NCMD/none", b"")
    assert late.received == [("spBv1.0/Plant/NCMD/none", b"")]
    late.link.close()
    control.listener.link.close()
