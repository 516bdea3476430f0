"""A subscriber that records when the server and the devices publish; it outlives restarts of the broker."""

import json
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable

import paho.mqtt.client as mqtt
from paho.mqtt.enums import CallbackAPIVersion

SERVER = "server"


class BrokerObserver:
    """Records the times of the server's announcements and devices' births, and every acknowledged update.

    `epochs` is when each epoch of a server was first heard; `late` counts words of an older one after that.
    """

    def __init__(self, port: int, federation: str) -> None:
        root = f"fed/v1/{federation}"
        # Without the models: a subscriber to all of them would be the broker's largest load.
        self._filters = [
            (f"{root}/{topic}", 1) for topic in ("all/#", "devices/+/up/birth", "devices/+/down/control")
        ]
        self._changed = threading.Condition()
        self._signs: dict[str, list[float]] = defaultdict(list)
        self.acknowledged: set[tuple[str, str]] = set()
        self.epochs: dict[int, float] = {}
        self.late = 0
        self._last = time.monotonic()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        self._client.reconnect_delay_set(0.1, 0.2)  # type: ignore[arg-type]
        self._client.on_connect = lambda client, *_: client.subscribe(self._filters)
        self._client.on_message = self._on_message
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def sign_after(self, who: str, moment: float) -> float | None:
        """The first message of `who` after `moment` (monotonic seconds), or None."""
        signs = self._signs[who]
        first = bisect_right(signs, moment)
        return signs[first] if first < len(signs) else None

    def wait(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a message makes the condition true; returns whether one did."""
        with self._changed:
            return self._changed.wait_for(condition, timeout=timeout_s)

    def await_end(self, is_over: Callable[[], bool], silence_s: float) -> bool:
        """Wait as long as messages come, however slow the machine; False after `silence_s` without one."""
        while not self.wait(is_over, 0.5):
            if time.monotonic() - self._last > silence_s:
                return False
        return True

    def close(self) -> None:
        """Stop listening."""
        self._client.disconnect()
        self._client.loop_stop()

    def _on_message(self, client: mqtt.Client, userdata: object, message: mqtt.MQTTMessage) -> None:
        now = time.monotonic()
        parts = message.topic.split("/")[3:]
        with self._changed:
            if message.retain:
                return
            self._last = now
            if parts[0] == "all" or parts[2:] == ["down", "control"]:
                self._note_epoch(json.loads(message.payload), now)
            if parts[0] == "all":
                self._signs[SERVER].append(now)
            if parts[2:] == ["up", "birth"] and b'"birth"' in message.payload[:40]:
                self._signs[parts[1]].append(now)
            if parts[2:] == ["down", "control"]:
                self._acknowledgement(parts[1], message.payload)
            self._changed.notify_all()

    def _note_epoch(self, message: dict[str, object], now: float) -> None:
        """Note when a server's epoch was first heard, and words of an older one after that."""
        if "run" not in message:
            return
        epoch = message.get("epoch") or 1
        assert isinstance(epoch, int)
        self.late += epoch < max(self.epochs, default=1)
        self.epochs.setdefault(epoch, now)

    def _acknowledgement(self, device: str, payload: bytes) -> None:
        message = json.loads(payload)
        if message["kind"] == "acknowledgement" and message.get("digest"):
            self.acknowledged.add((device, message["digest"]))
