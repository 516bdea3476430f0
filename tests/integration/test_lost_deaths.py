"""A device of which only the broker says that it is connected is asked after each reconnect of the server."""

import json
import queue
from collections.abc import Iterator

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from edge_client.transport.broker_link import BrokerAddress, LinkUp
from schemas.errors import Reason
from schemas.messages import BlobRequest, Refusal, decode_message, encode_message
from tests.integration.conftest import DEADLINE_S, ONE_BROKER, demo_config
from tests.integration.test_invented_devices import CARD

UP = "fed/v1/test/devices/pi/up"


class Mortal:
    """A device that joins, and that the broker does not miss when it is gone."""

    def __init__(self, address: BrokerAddress) -> None:
        self.asked: queue.SimpleQueue[BlobRequest] = queue.SimpleQueue()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self.client.on_message = self._note
        self.client.on_subscribe = lambda *_: self._join()
        self.client.connect(address.host, address.port)
        self.client.subscribe("fed/v1/test/devices/pi/down/#", qos=1)
        self.client.loop_start()

    def _join(self) -> None:
        birth = {"kind": "birth", "federation": "test", "device": "pi", "session": 1, "data": CARD}
        self.client.publish(f"{UP}/birth", json.dumps(birth), qos=1, retain=True)

    def _note(self, client: object, userdata: object, message: mqtt.MQTTMessage) -> None:
        if isinstance(heard := decode_message(message.payload), BlobRequest):
            self.asked.put(heard)

    def answer(self) -> None:
        """Answer the server's next question."""
        digest = self.asked.get(timeout=DEADLINE_S).digest
        refusal = Refusal(federation="test", device="pi", reason=Reason.UNKNOWN_BLOB, digest=digest)
        self.client.publish(f"{UP}/control", encode_message(refusal), qos=1)


@pytest.fixture
def device(address: BrokerAddress) -> Iterator[Mortal]:
    mortal = Mortal(address)
    yield mortal
    mortal.client.disconnect()
    mortal.client.loop_stop()


@ONE_BROKER
def test_a_known_device_is_asked_again_and_not_planned_before_it_answers(serve, device: Mortal) -> None:
    run = serve(demo_config(**{"start-clients": 2}))
    device.answer()
    able = lambda _: bool(run.server.driver.federation.fleet.able())  # noqa: E731
    run.watched.until(able)
    run.server.inbox.put(LinkUp(2, None))
    run.watched.until(lambda now: not able(now))
    device.answer()
    run.watched.until(able)
