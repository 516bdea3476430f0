"""A bridge: a connection of its own to the broker, and a thread that handles its events and takes turns."""

import logging
import queue
import threading
from typing import Any

from edge_client.transport.broker_link import BrokerAddress, Inbox
from edge_client.transport.event_loop import EventLoop
from edge_client.transport.mqtt_client import Link
from edge_server.observability.snapshot import Snapshot

log = logging.getLogger(__name__)

LONGEST_DELAY_S = 2.0
END_S = 10


class Bridge:
    """Calls `_handle` with each event of the connection and `_turn` with the time every `every_s` seconds.

    `link` are further arguments of the connection. Errors are logged and end nothing.
    """

    def __init__(self, name: str, address: BrokerAddress, *, every_s: float, **link: Any) -> None:
        self._name = name
        self._latest: Snapshot | None = None
        self.inbox: Inbox = queue.SimpleQueue()
        self._link = Link(address, self.inbox, longest_delay_s=LONGEST_DELAY_S, **link)
        self._loop = EventLoop(self.inbox, every_s, tick=self._turn, handle=self._handle, name=name)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def show(self, snapshot: Snapshot) -> None:
        self._latest = snapshot

    def open(self) -> None:
        self._link.open()
        self._thread.start()

    def close(self) -> None:
        raise NotImplementedError

    def _turn(self, now: float) -> None:
        raise NotImplementedError

    def _handle(self, event: Any) -> None:
        raise NotImplementedError

    def _end_thread(self) -> None:
        """Stop the thread and wait up to `END_S` seconds for it."""
        self._ending.set()
        self._thread.join(timeout=END_S)

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._loop.run(until=self._ending.is_set)
            except Exception:
                log.exception("%s: an update was not sent", self._name)
