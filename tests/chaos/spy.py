"""Who says what on the broker, and when: a subscriber that survives the broker."""

from __future__ import annotations

import json
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

SERVER = "server"


class Spy:
    """Notes the last live sign of the server and of every device, and every acknowledged update."""

    def __init__(self, port: int, federation: str) -> None:
        root = f"fed/v1/{federation}"
        # Not the models: a listener to all of them would be the broker's heaviest client.
        self._filters = [
            (f"{root}/{topic}", 1) for topic in ("all/#", "devices/+/up/birth", "devices/+/down/control")
        ]
        self._changed = threading.Condition()
        self._signs: dict[str, list[float]] = defaultdict(list)
        self.acknowledged: set[tuple[str, str]] = set()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.reconnect_delay_set(0.1, 0.2)  # type: ignore[arg-type]
        self._client.on_connect = lambda client, *_: client.subscribe(self._filters)
        self._client.on_message = self._heard
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def sign_after(self, who: str, moment: float) -> float | None:
        """When `who` first spoke after that moment, as far as is known."""
        signs = self._signs[who]
        first = bisect_right(signs, moment)
        return signs[first] if first < len(signs) else None

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until something that was heard makes the condition true."""
        with self._changed:
            return self._changed.wait_for(condition, timeout=timeout_s)

    def close(self) -> None:
        """Stop listening."""
        self._client.disconnect()
        self._client.loop_stop()

    def _heard(self, client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        now = time.monotonic()
        parts = message.topic.split("/")[3:]
        with self._changed:
            if message.retain:
                return
            if parts[0] == "all":
                self._signs[SERVER].append(now)
            if parts[2:] == ["up", "birth"] and b'"birth"' in message.payload[:40]:
                self._signs[parts[1]].append(now)
            if parts[2:] == ["down", "control"]:
                self._acknowledgement(parts[1], message.payload)
            self._changed.notify_all()

    def _acknowledgement(self, device: str, payload: bytes) -> None:
        said = json.loads(payload)
        if said["kind"] == "acknowledgement" and said.get("digest"):
            self.acknowledged.add((device, said["digest"]))
