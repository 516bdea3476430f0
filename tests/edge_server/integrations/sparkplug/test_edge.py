"""The edge node at a real broker: births and data, the will when it is cut off, a host's command."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_client.transport.broker_address import parse_address
from edge_server.integrations.sparkplug.service import Sparkplug, next_connection
from edge_server.transport.broker.launch import find_mosquitto, running_broker
from tests.edge_server.integrations.home_assistant.field import Ear
from tests.edge_server.integrations.home_assistant.moments import GARAGE, KITCHEN, snapshot
from tests.edge_server.integrations.sparkplug.host import Host
from tests.edge_server.integrations.sparkplug.record import GOLDEN

NBIRTH, NDEATH = "spBv1.0/Plant/NBIRTH/home", "spBv1.0/Plant/NDEATH/home"


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    kind = "mosquitto" if find_mosquitto() is not None else "embedded"
    with running_broker(kind, tmp_path / "broker") as running:
        yield running.url


class Control:
    """A host by the book at the broker."""

    def __init__(self, url: str) -> None:
        self.ear, self.host, self._read = Ear(url, "spBv1.0/#", name="scada"), Host(), 0

    def until(self, topic: str) -> None:
        """Take all messages up to the next on this topic."""
        self.ear.until(lambda heard, payload: heard == topic)
        for heard in self.ear.heard[self._read :]:
            if "/NCMD/" not in heard[0]:
                self.host.hears(*heard)
        self._read = len(self.ear.heard)


def test_a_node_is_born_tells_what_changes_is_asked_again_is_cut_off_and_leaves(url, tmp_path) -> None:
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
    # A host that came too late; the bytes of its command are Tahu's. Junk is passed over.
    control.ear.link.publish("spBv1.0/Plant/NCMD/home", b"junk", qos=0)
    control.ear.link.publish("spBv1.0/Plant/NCMD/home", (GOLDEN / "rebirth.bin").read_bytes(), qos=0)
    control.until("spBv1.0/Plant/DBIRTH/home/pi-4.kitchen")
    assert (control.host.bd_seq, control.host.last_seq) == (0, 1)
    # Another connection of its name ends its own: the broker says the will, and it comes back by itself.
    thief = Ear(url, name="home-sparkplug")
    thief.link.close()
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
        control.until(NDEATH)  # the same again, by the broker: 6.4.25, "Disconnect with Will Message"
    # The next process goes on counting.
    assert next_connection(numbers) == born_again + 1
    control.ear.link.close()


def test_nothing_of_it_is_retained(url, tmp_path) -> None:
    """5.4: births and deaths are for who is there; a host that comes later asks."""
    control, node = Control(url), Sparkplug("Plant", "home", parse_address(url), tmp_path / "numbers")
    node.open()
    node.show(snapshot(KITCHEN))
    control.until("spBv1.0/Plant/DBIRTH/home/pi-4.kitchen")
    node.close()
    control.until(NDEATH)
    late = Ear(url, "spBv1.0/#", name="late")
    late.link.publish("spBv1.0/Plant/NCMD/none", b"")
    late.on("spBv1.0/Plant/NCMD/none", b"")
    assert late.heard == [("spBv1.0/Plant/NCMD/none", b"")]
    late.link.close()
    control.ear.link.close()
