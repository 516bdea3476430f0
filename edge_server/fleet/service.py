"""The fleet service: one event loop that passes what happens to its parts.

One thread owns the parts; MQTT clients and other threads only put events into its inbox.
"""

import logging
import os
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edge_client.system.watchdog import watchdog_of
from edge_client.transport.event_loop import EventLoop, Stop, call_part
from edge_client.transport.link_events import LinkDown, LinkUp
from edge_server.fleet.federation_link import FederationLink, FromBroker
from edge_server.fleet.part import Part, ServiceContext
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.messages import Message

log = logging.getLogger(__name__)

TICK_S = 0.5


@dataclass(frozen=True)
class Wake:
    """Event: a part has something to do."""


MakeParts = Callable[[ServiceContext], tuple[Part, ...]]


class FleetService:
    """Serves a folder until it is stopped; `make_parts` builds the parts."""

    def __init__(self, folder: ServiceFolder, settings: ServiceSettings, make_parts: MakeParts) -> None:
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._links = {served.name: FederationLink(served, self.inbox) for served in settings.federations}
        self._inventory = Inventory(folder.inventory)
        context = ServiceContext(folder, settings, self._inventory, self._publish, self.wake, self._retain)
        self._parts = make_parts(context)
        self._watchdog = watchdog_of(os.environ)
        self._loop = EventLoop(self.inbox, TICK_S, tick=self._tick, handle=self._handle)
        self._stopped = False

    def run(self) -> None:
        """Serve until stopped; lost connections are made again."""
        for link in self._links.values():
            link.open()
        self._watchdog.ready()
        try:
            self._loop.run(until=lambda: self._stopped)
        finally:
            self._watchdog.stopping()
            for part in reversed(self._parts):
                call_part(part.stop)
            for link in self._links.values():
                link.close()
            self._inventory.close()

    def stop(self) -> None:
        """End soon; safe in a signal handler or another thread."""
        self.inbox.put(Stop())

    def wake(self) -> None:
        """Tick soon; safe in another thread."""
        self.inbox.put(Wake())

    def _publish(self, federation: str, device: str, message: Message) -> None:
        self._links[federation].publish(device, message)

    def _retain(self, federation: str, topic: str, payload: bytes) -> None:
        self._links[federation].retain(topic, payload)

    def _handle(self, event: Any) -> None:
        match event:
            case Stop():
                self._stopped = True
            case Wake():
                self._loop.tick_soon()
            case FromBroker(federation, inner):
                self._from_broker(self._links[federation], inner)

    def _tick(self, now: float) -> None:
        self._watchdog.alive(now)
        for link in self._links.values():
            link.tick()
        for part in self._parts:
            call_part(part.tick, time.time())

    def _from_broker(self, link: FederationLink, event: Any) -> None:
        heard, now = link.receive(event), time.time()
        match event:
            case LinkUp():
                log.info("%s: connected to %s", link.name, link.connection.address)
                self._each(lambda part: part.on_connected(link.name, now))
            case LinkDown(reason):
                log.warning("%s: no connection to %s: %s", link.name, link.connection.address, reason)
                self._each(lambda part: part.on_disconnected(link.name, reason))
        if heard is not None:
            self._each(lambda part: part.on_message(heard, now))

    def _each(self, call: Callable[[Part], None]) -> None:
        for part in self._parts:
            call_part(call, part)
