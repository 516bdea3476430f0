"""Sending a test to one receiver of alerts, without the service."""

import queue
import time

from edge_client.transport import broker_link, mqtt_client
from edge_client.transport.broker_link import BrokerAddress
from edge_server.fleet.alerts.alert_keeper import build_receiver
from edge_server.fleet.alerts.delivery import DeliveryError
from edge_server.fleet.alerts.message import trial_notification
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.service_folder import ServiceFolder
from schemas.errors import ConfigError, nearest

PATIENCE_S = 10.0


def try_receiver(folder: ServiceFolder, settings: ServiceSettings, name: str, *, now: float) -> None:
    """Send a test; raises `ConfigError` for an unknown receiver, `DeliveryError` if it does not take it."""
    receivers = settings.alerts.receivers
    if name not in receivers:
        known = nearest(name, receivers) or ": name it in a table [alerts.receivers.NAME]"
        raise ConfigError(f"there is no receiver '{name}'{known}", place=folder.settings)

    def publish(federation: str, topic: str, payload: bytes) -> None:
        served = settings.federation(federation or None)
        publish_retained(served.address("operator"), f"{served.name}-operator", topic, payload)

    deliver = build_receiver(name, settings, publish)
    deliver(trial_notification(name, now, settings.page.address))


def publish_retained(address: BrokerAddress, client_id: str, topic: str, payload: bytes) -> None:
    """Connect, publish one retained message, and wait until the broker has it; raises `DeliveryError`."""
    inbox: broker_link.Inbox = queue.SimpleQueue()
    link = mqtt_client.Link(address, inbox, client_id=client_id, filters=())
    link.open()
    try:
        _wait_for_link(link, inbox, address)
        link.publish(topic, payload, retain=True)
    finally:
        link.close()
    while not inbox.empty():
        event = inbox.get()
        if isinstance(event, broker_link.Confirmed):
            link.handle(event)
    if link.outgoing:
        raise DeliveryError(f"{address}: the broker did not confirm the message: check its access rules")


def _wait_for_link(link: mqtt_client.Link, inbox: broker_link.Inbox, address: BrokerAddress) -> None:
    until, why = time.monotonic() + PATIENCE_S, "no answer"
    while (left := until - time.monotonic()) > 0:
        try:
            event = inbox.get(timeout=left)
        except queue.Empty:
            break
        link.handle(event)
        if isinstance(event, broker_link.LinkUp):
            return
        if isinstance(event, broker_link.LinkDown) and not event.downgrade:
            why = event.reason
            break
    raise DeliveryError(f"{address}: cannot be reached: {why}; check [[federations]] broker")
