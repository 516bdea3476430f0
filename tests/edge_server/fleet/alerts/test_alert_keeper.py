"""Alerts of the running service: a webhook and Home Assistant hear of a silent board and its return."""

import json
import queue
import threading
from contextlib import closing
from pathlib import Path

import paho.mqtt.client as paho

from edge_server.fleet.alerts.alert_keeper import AlertKeeper
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.fleet.service import FleetService, PresenceKeeper
from edge_server.fleet.settings.alerts import AlertSettings
from edge_server.fleet.settings.service import ServedFederation, ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from edge_server.transport.broker.launch import running_broker
from schemas.messages import Birth, Death, Message, encode_message
from schemas.topics import Channel, DeviceTopic
from schemas.values import DataCard
from tests.edge_server.fleet.alerts.receivers import running_hook

DEADLINE_S = 30
CARD = DataCard(source="digits", examples=10, input_shape=(1, 8, 8), num_classes=10)


def birth(session: int) -> Birth:
    return Birth(federation="orchard", device="pi-7", session=session, data=CARD, labels={"site": "barn"})


def settings(broker: str, hook: str, *, silent_for: str) -> ServiceSettings:
    alerts = AlertSettings.model_validate(
        {
            "every": "0.05s",
            "gather": "0s",
            "rules": [{"name": "silent", "when": "silent-for", "value": silent_for, "where": "site=barn"}],
            "receivers": {"ops": {"kind": "webhook", "url": hook}, "home": {"kind": "home-assistant"}},
        }
    )
    return ServiceSettings(federations=(ServedFederation(name="orchard", broker=broker),), alerts=alerts)


class Births(Part):
    """Tells that a birth was heard."""

    def __init__(self) -> None:
        self.heard_one = threading.Event()

    def on_message(self, heard: Heard, now: float) -> None:
        if isinstance(heard.message, Birth):
            self.heard_one.set()


class Broker:
    """A client that publishes for devices and hears what Home Assistant would."""

    def __init__(self, host: str, port: int) -> None:
        self.heard: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.on_message = lambda client, data, sent: self.heard.put((sent.topic, sent.payload))
        self._client.connect(host, port)
        self._client.subscribe("fed/v1/orchard/home/#", 1)
        self._client.loop_start()

    def say(self, message: Message) -> None:
        topic = str(DeviceTopic("orchard", "pi-7", Channel.BIRTH))
        self._client.publish(topic, encode_message(message), 1, retain=True).wait_for_publish(DEADLINE_S)

    def state(self, wanted: str) -> None:
        while json.loads(self.heard.get(timeout=DEADLINE_S)[1])["state"] != wanted:
            pass

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


def test_a_silent_board_is_told_and_resolved_and_a_restart_tells_it_no_second_time(tmp_path: Path):
    with running_broker("embedded", tmp_path / "broker") as address, running_hook() as hook:
        where = f"mqtt://{address.host}:{address.port}"
        with closing(Broker(address.host, address.port)) as broker:
            with serving(tmp_path, settings(where, hook.url, silent_for="0.3s")) as births:
                broker.say(birth(1))
                assert births.heard_one.wait(DEADLINE_S)
                broker.say(Death(federation="orchard", device="pi-7", session=1))
                notified = json.loads(hook.next().content)
                assert notified["title"] == "warning: silent: pi-7"
                assert notified["alerts"][0]["site"] == "barn"
                assert "edge-server logs pi-7" in notified["alerts"][0]["remedy"]
                broker.state("ON")
            with closing(AlertStore(tmp_path / "alerts.sqlite")) as store:
                assert [alert.subject.name for alert in store.alerts().values()] == ["pi-7"]
            with serving(tmp_path, settings(where, hook.url, silent_for="1h")):
                resolved = json.loads(hook.next().content)
                assert resolved["title"] == "resolved: silent: pi-7"
                broker.state("OFF")


class serving:
    """The service in a thread until the block ends."""

    def __init__(self, folder: Path, chosen: ServiceSettings) -> None:
        self._births = Births()
        self._service = FleetService(ServiceFolder(folder), chosen, self._parts)
        self._thread = threading.Thread(target=self._service.run)

    def _parts(self, context: ServiceContext) -> tuple[Part, ...]:
        return PresenceKeeper(context.inventory), AlertKeeper(context, settled_s=0.0), self._births

    def __enter__(self) -> Births:
        self._thread.start()
        return self._births

    def __exit__(self, *_: object) -> None:
        self._service.stop()
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()


def test_a_last_will_that_the_broker_repeats_is_no_sign_of_life(tmp_path: Path):
    death = Death(federation="orchard", device="pi-7", session=1)
    with closing(Inventory(tmp_path / "inventory.sqlite")) as inventory:
        inventory.record_birth(birth(1), 100.0)
        inventory.record_death(death, 200.0)
        inventory.record_death(death, 300.0)
        known = inventory.device("orchard", "pi-7")
        assert known is not None
        assert known.seen_at == 200.0
