"""Alerts: evaluates the rules on inventory, runs and rollouts, and hands notifications to threads."""

import logging
import queue

from edge_server.fleet.alerts import alert, delivery, incidents, machine, store
from edge_server.fleet.alerts.receivers.home_assistant import Publish, Unresolved, home_assistant
from edge_server.fleet.alerts.receivers.http_post import alertmanager, webhook
from edge_server.fleet.alerts.receivers.mail import mail
from edge_server.fleet.part import Part, Retain, ServiceContext
from edge_server.fleet.settings import alerts
from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.inventory.inventory import DeviceReader


def build_receiver(
    name: str, settings: ServiceSettings, publish: Publish, unresolved: Unresolved = frozenset
) -> delivery.Deliver:
    """The receiver of this name; `publish` is for those on the broker.

    `unresolved` returns the alerts that are. Raises `ConfigError` for a secret that cannot be read.
    """
    match settings.alerts.receivers[name]:
        case alerts.WebhookReceiver() as receiver:
            return webhook(receiver)
        case alerts.MailReceiver() as receiver:
            return mail(receiver)
        case alerts.HomeAssistantReceiver() as receiver:
            rules = [rule.title for rule in settings.alerts.rules]
            first = next((served.name for served in settings.federations), "")
            return home_assistant(receiver, rules, publish, federation=first, unresolved=unresolved)
        case alerts.AlertmanagerReceiver() as receiver:
            return alertmanager(receiver)


def resend_seconds(settings: alerts.AlertSettings) -> dict[str, float | None]:
    """Receivers that want firing alerts again and again, with their seconds; None for all others."""
    return {
        name: receiver.resend if isinstance(receiver, alerts.AlertmanagerReceiver) else None
        for name, receiver in settings.receivers.items()
    }


log = logging.getLogger(__name__)

SETTLED_S = 30.0  # Seconds after connecting until the broker has said who is there


class RetainedMessages:
    """Carries retained messages from the threads of receivers to the service's thread."""

    def __init__(self, context: ServiceContext) -> None:
        self._retain: Retain = context.retain
        self._wake = context.wake
        self._connected: frozenset[str] = frozenset()
        self._waiting: queue.SimpleQueue[tuple[str, str, bytes]] = queue.SimpleQueue()

    def allow(self, federations: frozenset[str]) -> None:
        """Take messages for these federations, which have a connection."""
        self._connected = federations

    def publish(self, federation: str, topic: str, payload: bytes) -> None:
        """Hand a message over, from any thread; raises `DeliveryError` without a connection."""
        if federation not in self._connected:
            raise delivery.DeliveryError(f"federation {federation}: there is no connection to its broker")
        self._waiting.put((federation, topic, payload))
        self._wake()

    def send(self) -> None:
        """Publish what waits, in the service's thread."""
        while not self._waiting.empty():
            self._retain(*self._waiting.get())


class AlertKeeper(Part):
    """Evaluates the rules now and then; raises `ConfigError` for a receiver whose secret cannot be read."""

    def __init__(self, context: ServiceContext, *, settled_s: float = SETTLED_S) -> None:
        settings, names = context.settings.alerts, [served.name for served in context.settings.federations]
        self._settings, self._settled_s = settings, settled_s
        self._page = context.settings.page.address
        self._reader = DeviceReader(context.inventory)
        self._rules = settings.parsed_rules()
        self._resend = resend_seconds(settings)
        self._store = store.AlertStore(context.folder.alerts)
        self._store.keep_receivers(settings.receivers)
        self._alerts = self._store.alerts()
        self._incidents = incidents.IncidentReader(
            context.folder, horizon_s=max((rule.within_s for rule in self._rules), default=0.0)
        )
        self._messages = RetainedMessages(context)
        receivers = {
            name: build_receiver(name, context.settings, self._messages.publish, self._store.alerts)
            for name in settings.receivers
        }
        self._deliveries = delivery.Deliveries(receivers, self._store)
        self._deliveries.start()
        self._federations = frozenset(names)
        self._connected: dict[str, float] = {}
        self._next = 0.0

    def on_connected(self, federation: str, now: float) -> None:
        self._connected[federation] = now
        self._messages.allow(frozenset(self._connected))

    def on_disconnected(self, federation: str, why: str) -> None:
        self._connected.pop(federation, None)
        self._messages.allow(frozenset(self._connected))

    def tick(self, now: float) -> None:
        self._messages.send()
        # A clock that was set back does not stop the rules.
        if self._next - self._settings.every <= now < self._next:
            return
        self._next = now + self._settings.every
        if self._rules or self._alerts:
            self._evaluate(now)

    def stop(self) -> None:
        self._deliveries.end()
        self._messages.send()
        self._store.close()

    def _evaluate(self, now: float) -> None:
        plan = machine.Plan(
            {rule.name: rule for rule in self._rules},
            self._resend,
            silences=self._store.silences(now),
            gather_s=self._settings.gather,
            acknowledged=self._store.acknowledgements().keys(),
            page=self._page,
        )
        found = alert.evaluate(self._rules, self._facts(now), now)
        after = machine.step(self._alerts, found, plan, now)
        self._store.save(self._alerts, after.alerts, after.notifications, now=now)
        self._alerts = dict(after.alerts)
        if after.notifications:
            self._deliveries.wake()

    def _facts(self, now: float) -> alert.Facts:
        heard = {name for name, since in self._connected.items() if now - since >= self._settled_s}
        devices = (row for row in self._reader.devices() if row.federation in self._federations)
        return alert.gather(devices, self._incidents.read(now), unheard=frozenset(self._federations - heard))
