"""A listener at a broker, and a minimal run that tracks its devices and shows them to a watcher."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from edge_client.transport.broker_link import Arrived, LinkUp, parse_address
from edge_client.transport.mqtt_client import Link
from edge_server.observability.counters import RunCounters
from edge_server.observability.snapshot import Watcher
from edge_server.observability.views import make_snapshot
from edge_server.rounds.fleet import Fleet
from edge_server.rounds.state import Federation, RoundRules
from schemas.messages import Birth, decode_message
from schemas.topics import server_filters

DEADLINE_S = 60.0
TURN_S = 0.1


class Listener:
    """A client that records messages from the broker and can publish."""

    def __init__(self, url: str, *filters: str, name: str = "listener") -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.link = Link(parse_address(url), self._inbox, client_id=name, filters=filters)
        self.received: list[tuple[str, bytes]] = []
        self.link.open()
        while not isinstance(self._inbox.get(timeout=DEADLINE_S), LinkUp):
            pass

    def until(self, wanted: Callable[[str, bytes], bool]) -> bytes:
        """Wait for a message that satisfies `wanted`; `received` stores all messages up to it."""
        until = time.monotonic() + DEADLINE_S
        while (left := until - time.monotonic()) > 0:
            try:
                event = self._inbox.get(timeout=left)
            except queue.Empty:
                break
            if isinstance(event, Arrived):
                self.received.append((event.topic, event.payload))
                if wanted(event.topic, event.payload):
                    return event.payload
        raise AssertionError(f"never received; the last were {self.received[-10:]}")

    def on(self, topic: str, payload: bytes) -> None:
        """Wait for exactly this message."""
        self.until(lambda *received: received == (topic, payload))


class Run:
    """Receives births and wills as a server does, and shows the run to `watcher`."""

    def __init__(self, url: str, watcher: Watcher, *, federation: str = "home") -> None:
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        filters = server_filters(federation)
        self._link = Link(parse_address(url), self._inbox, client_id="run", filters=filters)
        self._federation, self._watcher, self._fleet = federation, watcher, Fleet()
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Run:
        self._link.open()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join(DEADLINE_S)
        self._link.close()

    def _follow(self) -> None:
        while not self._ending.is_set():
            try:
                event = self._inbox.get(timeout=TURN_S)
            except queue.Empty:
                self._show()
                continue
            if isinstance(event, Arrived) and event.topic.endswith("/birth") and event.payload:
                message: Any = decode_message(event.payload)
                born = isinstance(message, Birth)
                fleet = self._fleet
                self._fleet = fleet.born(message) if born else fleet.with_death(message, time.monotonic())

    def _show(self) -> None:
        federation = Federation(self._federation, "home-1", RoundRules(rounds=3), fleet=self._fleet)
        self._watcher.show(
            make_snapshot(
                federation,
                RunCounters(),
                tier=lambda device: device.profile.tier or 1,
                ratios=(0.5, 0.0),
                now=1.0,
                began=0.0,
                no_link="",
            )
        )
