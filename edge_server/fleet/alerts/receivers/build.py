"""Receivers by their kind."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from edge_server.fleet.alerts.delivery import Deliver
from edge_server.fleet.alerts.receivers.alertmanager import alertmanager
from edge_server.fleet.alerts.receivers.home_assistant import Publish, Unresolved, home_assistant
from edge_server.fleet.alerts.receivers.http_post import webhook
from edge_server.fleet.alerts.receivers.mail import mail
from edge_server.fleet.settings.alert_receivers import (
    AlertmanagerReceiver,
    HomeAssistantReceiver,
    MailReceiver,
    Receiver,
    WebhookReceiver,
)
from edge_server.fleet.settings.alerts import AlertSettings


def build_receivers(
    settings: AlertSettings,
    folder: Path,
    publish: Publish,
    *,
    federation: str = "",
    unresolved: Unresolved = frozenset,
) -> Mapping[str, Deliver]:
    """Every receiver by name; `unresolved` returns the alerts that are. Raises `ConfigError` for a
    secret that cannot be read.
    """
    rules = [rule.title for rule in settings.rules]
    return {
        name: build_receiver(
            receiver, folder, publish, rules=rules, federation=federation, unresolved=unresolved
        )
        for name, receiver in settings.receivers.items()
    }


def build_receiver(
    receiver: Receiver,
    folder: Path,
    publish: Publish,
    *,
    rules: Sequence[str],
    federation: str = "",
    unresolved: Unresolved = frozenset,
) -> Deliver:
    """One receiver; files are relative to `folder`, and `publish` is for those on the broker."""
    match receiver:
        case WebhookReceiver():
            return webhook(receiver, folder)
        case MailReceiver():
            return mail(receiver, folder)
        case HomeAssistantReceiver():
            return home_assistant(receiver, rules, publish, federation=federation, unresolved=unresolved)
        case AlertmanagerReceiver():
            return alertmanager(receiver, folder)


def resend_seconds(settings: AlertSettings) -> dict[str, float | None]:
    """Receivers that want firing alerts again and again, with their seconds; None for all others."""
    return {
        name: receiver.resend if isinstance(receiver, AlertmanagerReceiver) else None
        for name, receiver in settings.receivers.items()
    }
