"""The Home Assistant bridge: its own MQTT connection and thread; no round waits for Home Assistant."""

import logging
import time
from collections.abc import Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from edge_client.transport import broker_link
from edge_server.config.object_store import HomeAssistantSettings
from edge_server.observability.integrations.bridge import Bridge
from edge_server.observability.integrations.home_assistant import install_button, states, topics
from edge_server.observability.integrations.home_assistant.model_versions import ModelVersionReader
from edge_server.releases.registry.registry import Registry

log = logging.getLogger(__name__)

TURN_S = 0.5
SETTLED_S = 30.0  # Seconds after connecting until the broker has delivered every retained message


class HomeAssistant(Bridge):
    """Publishes a run to Home Assistant; `rollout` is the broker address of the Install button."""

    def __init__(
        self,
        settings: HomeAssistantSettings,
        federation: str,
        registry: Path,
        *,
        address: broker_link.BrokerAddress,
        rollout: broker_link.BrokerAddress,
        settled_s: float = SETTLED_S,
    ) -> None:
        self._topics, self._settled_s = topics.HomeAssistantTopics(federation, settings.prefix), settled_s
        super().__init__(
            "home-assistant",
            address,
            every_s=TURN_S,
            client_id=f"{federation}-home",
            filters=self._topics.filters,
            will=lambda session: (self._topics.status, states.OFFLINE),
        )
        self._installer = install_button.Installer(
            Registry(registry), federation, rollout, settings.watch_s, lambda event: self.inbox.put(event)
        )
        self._versions = ModelVersionReader(registry, federation)
        self._messages = states.DeviceMessages(self._topics)
        self._installations: dict[str, states.Installation] = {}
        self.sent = topics.SentMessages()
        self._retained = RetainedDevices()
        self._up_since: float | None = None

    def close(self) -> None:
        """Disconnect; without a server every device is shown as unavailable."""
        self._installer.close()
        self._end_thread()
        self._link.publish(self._topics.status, states.OFFLINE, retain=True)
        self._link.close()

    # --- incoming ---
    def _handle(self, event: Any) -> None:
        match event:
            case broker_link.Arrived(topic, payload):
                self._on_message(topic, payload)
            case broker_link.LinkUp():
                self._up_since = time.monotonic()
                self.sent = topics.forget_sent(self.sent)
                self._link.publish(self._topics.status, states.ONLINE, retain=True)
            case broker_link.LinkDown(reason):
                self._up_since = None
                log.info("Home Assistant: no connection to the broker: %s; trying again", reason)
                self._link.handle(event)
            case states.Installation(device):
                self._versions.expire()
                self._installations[device] = event

    def _on_message(self, topic: str, payload: bytes) -> None:
        match self._topics.parse(topic):
            case ("install", device) if payload == topics.INSTALL:
                # A retained press would start an installation at every reconnect.
                self._link.publish(topic, b"", retain=True)
                if self._is_connected(device):
                    self._installer.begin(device)
            case (("birth" | "config") as kind, device):
                self._retained.on_retained(kind, device, empty=not payload)

    def _is_connected(self, device: str) -> bool:
        latest = self._latest
        return latest is not None and any(view.device == device for view in latest.devices)

    # --- outgoing ---
    def _turn(self, now: float) -> None:
        if self._latest is None or self._up_since is None:
            return
        state = states.CurrentState(self._latest, self._versions.current(now), self._installations)
        present = {view.device for view in state.snapshot.devices}
        settled = now >= self._up_since + self._settled_s
        gone, away = self._retained.absent(present, settled=settled)
        messages = self._messages.wanted_messages(state, gone=gone, away=away)
        messages |= states.clear_devices(self._topics, gone & self._retained.published)
        self.sent, new = topics.due(self.sent, messages, now)
        for topic, payload in new:
            self._link.publish(topic, payload, retain=True)


@dataclass
class RetainedDevices:
    """Devices with a retained birth (`born`), with a cleared birth (`revoked`), with a discovery message."""

    born: set[str] = field(default_factory=set)
    revoked: set[str] = field(default_factory=set)
    published: set[str] = field(default_factory=set)

    def on_retained(self, kind: Literal["birth", "config"], device: str, *, empty: bool) -> None:
        """A birth or a discovery message of a device arrived; an empty one clears it."""
        held = self.born if kind == "birth" else self.published
        (held.discard if empty else held.add)(device)
        if kind == "birth":
            (self.revoked.add if empty else self.revoked.discard)(device)

    def absent(self, present: Set[str], *, settled: bool) -> tuple[frozenset[str], frozenset[str]]:
        """The devices that are gone for good, and published devices that are only absent from this run.

        Once the broker's retained messages are `settled`, a published device without a birth is gone, too.
        """
        absent = self.published - present
        gone = self.revoked | (absent - self.born if settled else set())
        return frozenset(gone), frozenset(absent - gone)
