"""The service follows devices over a real broker, and a part that fails ends neither service nor parts."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.fleet.service import RETAINED_S, FleetService, PresenceKeeper
from edge_server.fleet.settings.service import ServedFederation, ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder, open_service_folder
from edge_server.transport.broker.launch import running_broker
from schemas.errors import ConfigError
from schemas.messages import Birth, BlobRequest, Death, Message, Telemetry, encode_message
from schemas.values import BoardState, DataCard
from tests.mqtt_clients import connected_client

DEADLINE_S = 30
CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)
BIRTH = Birth(federation="home", device="pi-1", session=3, data=CARD, labels={"site": "barn"})
AT_A_SITE = Birth(federation="home", device="barn.pi-2", session=1, data=CARD)
TELEMETRY = Telemetry(federation="home", device="pi-1", session=3, phase="idle", board=BoardState(celsius=50))
CLAIM = BlobRequest(federation="home", device="pi-1", digest="0" * 64, first=0, count=1)
DEATH = Death(federation="home", device="pi-1", session=3)


class Listener(Part):
    """Puts what the service hears into a queue."""

    def __init__(self) -> None:
        self.heard_messages: queue.SimpleQueue[Heard] = queue.SimpleQueue()
        self.connections: queue.SimpleQueue[str] = queue.SimpleQueue()

    def on_connected(self, federation: str, now: float) -> None:
        self.connections.put(federation)

    def on_message(self, heard: Heard, now: float) -> None:
        self.heard_messages.put(heard)


class Faulty(Part):
    """Fails whenever it is called."""

    def on_message(self, heard: Heard, now: float) -> None:
        raise ZeroDivisionError

    def tick(self, now: float) -> None:
        raise ZeroDivisionError


@contextmanager
def served(folder: Path, broker: str, listener: Listener) -> Iterator[FleetService]:
    settings = ServiceSettings(federations=(ServedFederation(name="home", broker=broker),))

    def parts(context: ServiceContext) -> tuple[Part, ...]:
        return (Faulty(), PresenceKeeper(context.inventory), listener)

    service = FleetService(ServiceFolder(folder), settings, parts)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        yield service
    finally:
        service.stop()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


@pytest.fixture(scope="module")
def publish(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Callable[[str, Message], None]]]:
    with (
        running_broker("embedded", tmp_path_factory.mktemp("broker")) as broker,
        connected_client(broker.host, broker.port) as client,
    ):

        def send(topic: str, message: Message) -> None:
            sent = client.publish(
                f"fed/v1/home/{topic}", encode_message(message), qos=1, retain=topic.endswith("birth")
            )
            sent.wait_for_publish(DEADLINE_S)

        yield broker.url, send


def test_the_inventory_follows_what_devices_say(
    tmp_path: Path, publish: tuple[str, Callable[[str, Message], None]]
) -> None:
    url, send = publish
    listener = Listener()
    with served(tmp_path, url, listener):
        assert listener.connections.get(timeout=DEADLINE_S) == "home"
        send("devices/pi-1/up/birth", BIRTH)
        send("sites/barn/up/devices/barn.pi-2/birth", AT_A_SITE)
        first = [listener.heard_messages.get(timeout=DEADLINE_S) for _ in range(2)]
        # The subscription stands: what follows is not retained.
        send("devices/pi-9/up/birth", AT_A_SITE)
        send("devices/pi-1/up/control", CLAIM)
        send("devices/pi-1/up/control", TELEMETRY)
        send("devices/pi-1/up/birth", DEATH)
        heard = [*first, *(listener.heard_messages.get(timeout=DEADLINE_S) for _ in range(2))]
    kinds = [(said.device, said.message.kind, said.site) for said in heard]
    assert kinds == [
        ("pi-1", "birth", ""),
        ("barn.pi-2", "birth", "barn"),
        ("pi-1", "telemetry", ""),
        ("pi-1", "death", ""),
    ]
    inventory = Inventory(open_service_folder(tmp_path).inventory)
    devices = {device.device: device for device in inventory.devices()}
    inventory.close()
    assert devices["pi-1"].labels == {"site": "barn"}
    assert not devices["pi-1"].alive
    assert devices["pi-1"].board == BoardState(celsius=50)
    assert devices["barn.pi-2"].alive
    assert devices["barn.pi-2"].selectable["site"] == "barn"


def test_one_service_at_a_time_runs_in_a_folder(tmp_path: Path) -> None:
    folder = ServiceFolder(tmp_path)
    with (
        folder.lock_folder(),
        pytest.raises(ConfigError, match="a service runs in this folder"),
        folder.lock_folder(),
    ):
        pass
    with folder.lock_folder():
        pass


def test_a_stopped_service_says_how_to_go_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        service = FleetService(ServiceFolder(tmp_path), ServiceSettings(), lambda context: ())
        service.stop()
        service.run()
    assert caplog.messages == ["stopped; the same command continues"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="edge-server serve"):
        open_service_folder(tmp_path / "nowhere")


def test_devices_that_a_restarted_broker_does_not_know_count_as_gone(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    for device in ("pi-1", "pi-2"):
        inventory.record_birth(BIRTH.model_copy(update={"device": device}), 100.0)
    keeper = PresenceKeeper(inventory)
    keeper.on_connected("home", 1000.0)
    keeper.on_message(Heard("home", "pi-1", BIRTH), 1001.0)
    keeper.tick(1000.0 + RETAINED_S - 1)
    assert [device.alive for device in inventory.devices()] == [True, True]
    keeper.tick(1000.0 + RETAINED_S)
    assert {device.device: device.alive for device in inventory.devices()} == {"pi-1": True, "pi-2": False}
    gone = inventory.device("home", "pi-2")
    assert gone is not None
    assert gone.seen_at == 100.0
    inventory.close()


def test_nobody_is_gone_while_the_connection_is_broken(tmp_path: Path) -> None:
    inventory = Inventory(tmp_path / "inventory.sqlite")
    inventory.record_birth(BIRTH, 100.0)
    keeper = PresenceKeeper(inventory)
    keeper.on_connected("home", 1000.0)
    keeper.on_disconnected("home", "no route")
    keeper.tick(5000.0)
    assert [device.alive for device in inventory.devices()] == [True]
    inventory.close()
