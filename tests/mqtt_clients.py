"""A paho client of tests that is no device of ours: it publishes and listens as anybody could."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion


@contextmanager
def connected_client(
    host: str, port: int, *topics: str, hear: Callable[[str, bytes], object] | None = None
) -> Iterator[mqtt.Client]:
    """A client of MQTT 5 with its thread; it subscribes to the topics, and `hear` gets topic and payload."""
    client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    if hear:
        client.on_connect = lambda *_: client.subscribe([(topic, 1) for topic in topics])
        client.on_message = lambda _client, _data, message: hear(message.topic, message.payload)
    client.connect(host, port)
    client.loop_start()
    try:
        yield client
    finally:
        client.disconnect()
        client.loop_stop()
