"""The edge: a connection and a thread of its own, so that nothing in a round waits for Home Assistant."""

from __future__ import annotations

import logging
import queue
import time
from pathlib import Path
from typing import Any

from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.mqtt_client import Arrived, Inbox, Link, LinkDown, LinkUp
from edge_server.config.home_assistant import HomeAssistantSettings
from edge_server.integrations.background_thread import BackgroundThread
from edge_server.integrations.home_assistant.install_button import Installer
from edge_server.integrations.home_assistant.model_versions import ModelVersions, read_model_versions
from edge_server.integrations.home_assistant.rate_limit import SentMessages, due, forgotten
from edge_server.integrations.home_assistant.states import (
    OFFLINE,
    ONLINE,
    CurrentState,
    DeviceMessages,
    Installation,
    cleared,
)
from edge_server.integrations.home_assistant.topics import INSTALL, HomeAssistantTopics
from edge_server.observability.snapshot import Snapshot
from edge_server.releases.registry.registry import Registry

log = logging.getLogger(__name__)

TURN_S, SHELF_S = 0.5, 5.0
LONGEST_DELAY_S = 2.0
SETTLED_S = 30.0
"""So long after connecting the broker has told of every device that it knows of."""


class HomeAssistant:
    """Watches a run and tells Home Assistant; `rollout` is the broker as a rollout sees it."""

    def __init__(
        self,
        settings: HomeAssistantSettings,
        federation: str,
        registry: Path,
        *,
        address: BrokerAddress,
        rollout: BrokerAddress,
        settled_s: float = SETTLED_S,
    ) -> None:
        self._places = HomeAssistantTopics(federation, settings.prefix)
        self._registry, self._federation, self._settled_s = registry, federation, settled_s
        self.inbox: Inbox = queue.SimpleQueue()
        self._link = Link(
            address,
            self.inbox,
            client_id=f"{federation}-home",
            filters=self._places.filters,
            will=lambda session: (self._places.status, OFFLINE),
            longest_delay_s=LONGEST_DELAY_S,
        )
        self._installer = Installer(
            Registry(registry), federation, rollout, settings.watch_s, lambda one: self.inbox.put(one)
        )
        self._mapped, self._shelf = DeviceMessages(self._places), ModelVersions()
        self._installations: dict[str, Installation] = {}
        self._latest: Snapshot | None = None
        self._outbox = SentMessages()
        self._born, self._gone, self._told_of = set[str](), set[str](), set[str]()
        self._up_since: float | None = None
        self._next_look = 0.0
        self._beside = BackgroundThread(
            "home-assistant", self.inbox, every_s=TURN_S, turn=self._turn, handle=self._handle
        )

    def show(self, snapshot: Snapshot) -> None:
        """Take the state of the run; what is to be said of it is found out in another thread."""
        self._latest = snapshot

    def open(self) -> None:
        """Begin."""
        self._link.open()
        self._beside.start()

    def close(self) -> None:
        """End: every device is unavailable while nobody serves."""
        self._installer.close()
        self._beside.end()
        self._link.publish(self._places.status, OFFLINE, retain=True)
        self._link.close()

    # --- what comes in ---
    def _handle(self, event: Any) -> None:
        match event:
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case LinkUp():
                self._up_since = time.monotonic()
                self._outbox = forgotten(self._outbox)
                self._link.publish(self._places.status, ONLINE, retain=True)
            case LinkDown(reason):
                self._up_since = None
                log.info("Home Assistant: no connection to the broker: %s; trying again", reason)
                self._link.handle(event)
            case Installation(device):
                self._next_look = 0.0
                self._installations[device] = event

    def _arrived(self, topic: str, payload: bytes) -> None:
        match self._places.read(topic):
            case ("birth", device) if payload:
                self._born.add(device)
                self._gone.discard(device)
            case ("birth", device):
                self._born.discard(device)
                self._gone.add(device)
            case ("config", device) if payload:
                self._told_of.add(device)
            case ("config", device):
                self._told_of.discard(device)
            case ("install", device) if payload == INSTALL:
                # One that somebody has retained would be pressed again at every reconnect.
                self._link.publish(topic, b"", retain=True)
                if self._is_here(device):
                    self._installer.begin(device)

    def _is_here(self, device: str) -> bool:
        latest = self._latest
        return latest is not None and any(view.device == device for view in latest.devices)

    # --- what goes out ---
    def _turn(self, now: float) -> None:
        if self._latest is None or self._up_since is None:
            return
        if now >= self._next_look:
            self._next_look = now + SHELF_S
            self._shelf = read_model_versions(self._registry, self._federation)
        self._say(CurrentState(self._latest, self._shelf, self._installations), now)

    def _say(self, moment: CurrentState, now: float) -> None:
        gone, away = self._missing(moment.snapshot, now)
        messages = self._mapped.wanted(moment, gone=gone, away=away)
        messages |= cleared(self._places, gone & self._told_of)
        self._outbox, new = due(self._outbox, messages, now)
        for topic, payload in new:
            self._link.publish(topic, payload, retain=True)

    def _missing(self, snapshot: Snapshot, now: float) -> tuple[frozenset[str], frozenset[str]]:
        """Who is not there any more for good, and who was there before and is not in this run."""
        absent = self._told_of - {view.device for view in snapshot.devices}
        gone = set(self._gone)
        if self._up_since is not None and now >= self._up_since + self._settled_s:
            gone |= absent - self._born
        return frozenset(gone), frozenset(absent - gone)
