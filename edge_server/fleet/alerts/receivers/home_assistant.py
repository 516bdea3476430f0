"""Home Assistant by MQTT discovery: one binary sensor per device and rule, on the federation's broker.

The messages are retained, so that Home Assistant knows the state after it has restarted.
"""

import json
from collections.abc import Callable, Collection, Sequence

from edge_server.config.object_store import identifier
from edge_server.config.units import clean
from edge_server.fleet.alerts.alert import Alert, Key, Notification
from edge_server.fleet.alerts.delivery import Deliver
from edge_server.fleet.settings.alerts import HomeAssistantReceiver
from schemas.topics import ROOT

Publish = Callable[[str, str, bytes], None]
"""Publishes a retained message, or raises `DeliveryError`: federation, topic, payload."""
Message = tuple[str, str, bytes]  # Federation, topic, payload
Unresolved = Callable[[], Collection[Key]]  # Returns the alerts that are not resolved
ORIGIN = {"name": "edge-federation"}
OFF = b'{"state":"OFF"}'


def home_assistant(
    settings: HomeAssistantReceiver,
    rules: Sequence[str],
    publish: Publish,
    *,
    federation: str = "",
    unresolved: Unresolved = frozenset,
) -> Deliver:
    """A receiver that publishes; a test appears as a sensor of the `federation` that goes on and off."""

    def deliver(notification: Notification) -> None:
        for message in messages(settings, rules, notification, federation, unresolved()):
            publish(*message)

    return deliver


def messages(
    settings: HomeAssistantReceiver,
    rules: Sequence[str],
    notification: Notification,
    federation: str = "",
    unresolved: Collection[Key] = frozenset(),
) -> list[Message]:
    """The messages of a notification: each device's discovery message, then its states.

    Its other sensors are off, not unknown, unless their alerts are `unresolved`.
    """
    if notification.test:
        return _test(settings, federation)
    found: dict[tuple[str, str], bytes] = {}
    for alert in notification.alerts:
        subject = alert.subject
        topic = config_topic(settings.prefix, subject.federation, subject.name)
        named = subject.name if subject.kind == "device" else f"{subject.kind} {subject.name}"
        found[subject.federation, topic] = _config(subject.federation, subject.name, named, rules)
        for rule in rules:
            if (rule, *alert.key[1:]) not in unresolved:
                found[subject.federation, state_topic(subject.federation, subject.name, rule)] = OFF
    for alert in notification.alerts:
        topic = state_topic(alert.subject.federation, alert.subject.name, alert.rule)
        found[alert.subject.federation, topic] = _state(alert, on=alert in notification.firing)
    return [(federation, topic, payload) for (federation, topic), payload in found.items()]


def config_topic(prefix: str, federation: str, device: str) -> str:
    """The discovery topic; no device of the integration of runs has one that ends like it."""
    return f"{prefix}/device/{identifier(federation)}/{identifier(device)}_alerts/config"


def state_topic(federation: str, device: str, rule: str) -> str:
    return f"{ROOT}/{federation}/home/devices/{device}/alerts/{rule}"


def _config(federation: str, device: str, name: str, rules: Sequence[str]) -> bytes:
    own = f"edge-federation_{identifier(federation)}_{identifier(device)}"
    sensors = {
        f"alert_{identifier(rule)}": {
            "p": "binary_sensor",
            "name": f"Alert {rule}",
            "uniq_id": f"{own}_alert_{identifier(rule)}",
            "dev_cla": "problem",
            "stat_t": state_topic(federation, device, rule),
            "val_tpl": "{{ value_json.state }}",
            "json_attr_t": state_topic(federation, device, rule),
        }
        for rule in rules
    }
    about = {"ids": [f"edge-federation/{federation}/{device}"], "name": name, "mf": "edge-federation"}
    return json.dumps({"dev": about, "o": ORIGIN, "cmps": sensors}, separators=(",", ":")).encode()


def _state(alert: Alert, *, on: bool) -> bytes:
    attributes = {
        "state": "ON" if on else "OFF",
        "severity": alert.severity,
        "text": clean(alert.text),
        "remedy": alert.remedy,
        "site": alert.subject.site,
        "note": clean(alert.subject.note),
    }
    return json.dumps(attributes, separators=(",", ":")).encode()


def _test(settings: HomeAssistantReceiver, federation: str) -> list[Message]:
    config = _config(federation, "alerts", f"{federation} alerts", ["test"])
    state = json.dumps({"state": "OFF", "text": "This is a test of the receiver."}).encode()
    return [
        (federation, config_topic(settings.prefix, federation, "alerts"), config),
        (federation, state_topic(federation, "alerts", "test"), state),
    ]
