"""The fleet service: one event loop that passes what happens to its parts.

One thread owns the parts; MQTT clients and other threads only put events into its inbox.
"""

import contextlib
import logging
import os
import queue
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from edge_client.system.watchdog import watchdog_of
from edge_client.transport.broker_link import Arrived, Inbox, LinkDown, LinkUp, TaggedInbox
from edge_client.transport.event_loop import EventLoop, Stop, call_part
from edge_server.fleet.alerts.alert import Phase
from edge_server.fleet.alerts.alert_keeper import AlertKeeper
from edge_server.fleet.alerts.store import AlertStore
from edge_server.fleet.diagnostics.remote_part import RemotePart
from edge_server.fleet.part import Heard, Part, ServiceContext
from edge_server.fleet.queue.jobs_part import JobsPart
from edge_server.fleet.settings.service import ServedFederation, ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from edge_server.transport.broker_connection import BrokerConnection, check_sender
from schemas.errors import PeerError, Reason
from schemas.messages import Birth, Death, Message, Refusal, Telemetry, decode_message, encode_message
from schemas.messages.blobs import UNKNOWN_DIGEST
from schemas.topics import Channel, DeviceTopic, SiteTopic, device_topic, fleet_filters

log = logging.getLogger(__name__)


class FleetMetrics(Part):
    """Serves metrics until the service ends; raises `ConfigError` where it cannot listen."""

    def __init__(self, context: ServiceContext) -> None:
        self._open = contextlib.ExitStack()
        settings = context.settings.metrics
        if settings.listen is None:
            return
        # Only here: prometheus_client is not imported where no metrics are served.
        from edge_server.observability.prometheus.address import parse_listen
        from edge_server.observability.prometheus.collector import run_registry
        from edge_server.observability.prometheus.devices import InventoryCollector
        from edge_server.observability.prometheus.http_endpoint import serve_metrics

        listen = parse_listen(settings.listen, option="[metrics] listen")
        store = AlertStore(context.folder.alerts)
        self._open.callback(store.close)
        collector: Any = InventoryCollector(
            context.inventory.devices, lambda: firing(store), devices=settings.devices
        )
        served = serve_metrics(listen, run_registry(collector), option="[metrics] listen")
        log.info("metrics at %s", self._open.enter_context(served))

    def stop(self) -> None:
        self._open.close()


def firing(store: AlertStore) -> Counter[tuple[str, str]]:
    alerts = store.alerts().values()
    return Counter((alert.rule, alert.severity) for alert in alerts if alert.phase is not Phase.PENDING)


TELEMETRY_EVERY_S = 20.0
"""Least seconds between two writes of one device's telemetry: each waits for the disk."""
RETAINED_S = 60.0  # Seconds after a connection in which the broker delivers all retained births


class PresenceKeeper(Part):
    """Keeps the inventory up to date.

    A broker that was restarted without its retained messages says nothing of the devices that are gone: those
    that have not been heard `RETAINED_S` after a connection count as not connected.
    """

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory
        self._written: dict[tuple[str, str], float] = {}
        self._connected_at: dict[str, float] = {}
        self._present: defaultdict[str, set[str]] = defaultdict(set)

    def on_connected(self, federation: str, now: float) -> None:
        self._connected_at[federation] = now
        self._present[federation].clear()

    def on_disconnected(self, federation: str, why: str) -> None:
        self._connected_at.pop(federation, None)

    def on_message(self, heard: Heard, now: float) -> None:
        self._present[heard.federation].add(heard.device)
        match heard.message:
            case Birth() as birth:
                self._inventory.record_birth(birth, now, site=heard.site)
            case Death() as death:
                self._inventory.record_death(death, now)
            case Telemetry() as telemetry if self._is_due(heard, now):
                self._inventory.record_telemetry(telemetry, now)

    def tick(self, now: float) -> None:
        for federation, connected_at in list(self._connected_at.items()):
            if now - connected_at >= RETAINED_S:
                del self._connected_at[federation]
                self._inventory.record_absent(federation, self._present.pop(federation, set()))

    def _is_due(self, heard: Heard, now: float) -> bool:
        key = (heard.federation, heard.device)
        last = self._written.get(key)
        if last is not None and 0 <= now - last < TELEMETRY_EVERY_S:
            return False
        self._written[key] = now
        return True


TICK_S = 0.5
MakeParts = Callable[[ServiceContext], tuple[Part, ...]]


def make_parts(context: ServiceContext) -> tuple[Part, ...]:
    """The parts, in the order in which they hear of each event."""
    remote = RemotePart(context)
    return (
        PresenceKeeper(context.inventory),
        remote,
        JobsPart(context),
        AlertKeeper(context),
        FleetMetrics(context),
        *_page(context, remote),
    )


def _page(context: ServiceContext, remote: RemotePart) -> tuple[Part, ...]:
    """The page, unless the settings turn it off; it listens when this returns."""
    if not context.settings.page.enabled:
        return ()
    # What logging in needs is missed now, not at the first login.
    import argon2  # noqa: F401
    import authlib  # noqa: F401
    import joserfc  # noqa: F401

    from edge_server.fleet.page.page_part import PagePart

    page = PagePart(context, remote)
    page.begin()
    return (page,)


@dataclass(frozen=True)
class FromBroker:
    """Event: the link of a federation reports `event`."""

    federation: str
    event: Any


class FederationLink:
    """The service's connection to the broker of one federation: hears its devices, and publishes to them."""

    def __init__(self, served: ServedFederation, inbox: Inbox) -> None:
        self.name = served.name
        self._sites: dict[str, str] = {}
        self.connection = BrokerConnection(
            served.address(),
            TaggedInbox(inbox, partial(FromBroker, served.name)),  # type: ignore[arg-type]
            federation=served.name,
            role="fleet",
            filters=fleet_filters(served.name),
        )

    def open(self) -> None:
        self.connection.link.open()

    def close(self) -> None:
        self.connection.link.close()

    def tick(self) -> None:
        """Go on with the test of which message sizes the broker accepts."""
        self.connection.echo.tick(time.monotonic())

    def publish(self, device: str, message: Message) -> None:
        topic = device_topic(self.name, device, Channel.DOWN_FLEET, self._sites.get(device, ""))
        self.connection.link.publish(str(topic), encode_message(message))

    def retain(self, topic: str, payload: bytes) -> None:
        self.connection.link.publish(topic, payload, retain=True)

    def receive(self, event: LinkUp | LinkDown | Arrived) -> Heard | None:
        """Handle an event of the link; returns what a device said. Raises `PeerError`."""
        arrived = self.connection.receive(event, time.monotonic())
        if arrived is None or not arrived[1]:
            return None
        topic, payload = arrived
        # Of the claims and requests that devices send to the server only telemetry is of interest.
        if topic.channel is Channel.UP and b'"telemetry"' not in payload[:40]:
            self._answer(topic, payload)
            return None
        return self._parse_message(topic, payload)

    def _answer(self, topic: DeviceTopic | SiteTopic, payload: bytes) -> None:
        """Answer a device that asks whether anybody is there, which it does where no server has answered."""
        if isinstance(topic, DeviceTopic) and UNKNOWN_DIGEST.encode() in payload:
            answer = Refusal(
                federation=self.name, device=topic.device, digest=UNKNOWN_DIGEST, reason=Reason.UNKNOWN_BLOB
            )
            self.publish(topic.device, answer)

    def _parse_message(self, topic: DeviceTopic | SiteTopic, payload: bytes) -> Heard | None:
        message = decode_message(payload, federation=self.name)
        if not topic.device:
            raise PeerError(f"nothing is expected on {topic}")
        if topic.channel is not Channel.UP_FLEET and not isinstance(message, Birth | Death | Telemetry):
            return None
        check_sender(topic, kind=message.kind, device=str(getattr(message, "device", "")))
        site = topic.site if isinstance(topic, SiteTopic) else ""
        if site:
            self._sites[topic.device] = site
        else:
            self._sites.pop(topic.device, None)
        return Heard(self.name, topic.device, message, site)


@dataclass(frozen=True)
class Wake:
    """Event: a part has something to do."""


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
        log.info("stopped; the same command continues")

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
