"""Answers devices while the rest of the server, torch above all, is still being loaded.

A device that connects asks for a blob that does not exist, to learn whether a server is there. Everything
else waits, in order, for the server.
"""

import contextlib
import logging
import queue
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edge_client.transport.broker_link import Arrived, BrokerAddress, Inbox
from edge_server.config.config import Config
from edge_server.rounds.fleet import OwnLabels
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder, default_service_folder
from edge_server.transport.broker_connection import BrokerConnection
from edge_server.transport.lease.keeper import LeaseKeeper
from schemas import errors, messages, topics

log = logging.getLogger(__name__)


class LabelWatch:
    """The labels of one federation's devices; there need be no inventory, or not yet."""

    def __init__(self, path: Path, federation: str) -> None:
        self._path, self._federation = path, federation
        self._inventory: Inventory | None = None
        self._version: int | None = None
        self._known: OwnLabels = {}
        self._failed = ""

    def poll(self) -> OwnLabels | None:
        """All labels if they have changed since the last call, else None; called a few times a second."""
        try:
            return self._read_changes()
        except (errors.EdgeError, OSError, sqlite3.Error) as error:
            if str(error) != self._failed:
                log.warning("labels stay as they are: %s", error)
            self._failed = str(error)
            return None

    def close(self) -> None:
        if self._inventory is not None:
            self._inventory.close()

    def _read_changes(self) -> OwnLabels | None:
        if self._inventory is None:
            if not self._path.exists():
                return None
            self._inventory = Inventory(self._path)
        version = self._inventory.changed_elsewhere()
        if version == self._version:
            return None
        labels = self._inventory.labels(self._federation)
        self._version = version
        if labels == self._known:
            return None
        self._known = labels
        return labels


@contextmanager
def watched_labels(folder: Path | None, federation: str) -> Iterator[LabelWatch]:
    """The labels in the inventory of this service folder, or of the default one."""
    watch = LabelWatch(ServiceFolder(folder or default_service_folder()).inventory, federation)
    try:
        yield watch
    finally:
        watch.close()


NO_BLOB = "0" * 64  # The digest that devices ask for; no blob has it


class Reception:
    """The server's connection from the moment at which it may be opened."""

    def __init__(self, config: Config, address: BrokerAddress, lease: LeaseKeeper | None) -> None:
        settings = config.federation
        self._federation = settings.name
        filters = topics.server_filters(settings.name, blobs=not settings.receivers)
        filters += (topics.site_filters if settings.sites else topics.stray_gateway_filters)(settings.name)
        self.standby_topic = topics.standby_topic(settings.name, "report")
        self.inbox: Inbox = queue.SimpleQueue()
        self.connection = BrokerConnection(
            address,
            self.inbox,
            federation=settings.name,
            role="server",
            filters=filters if lease is None else (*filters, self.standby_topic),
            will=None if lease is None else lease.will,
        )
        self.is_open = False
        self._kept: list[Any] = []
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        self.is_open = True
        self.connection.link.open()
        self._thread = threading.Thread(target=self._run, name="reception", daemon=True)
        self._thread.start()

    def hand_over(self) -> list[Any]:
        """Stop answering; returns what has arrived meanwhile."""
        if self._thread is not None:
            self.inbox.put(None)
            self._thread.join()
            self._thread = None
        return self._kept

    def close(self) -> None:
        """Disconnect, unless the server has taken over."""
        if self._thread is not None:
            self.hand_over()
            self.connection.link.close()

    def _run(self) -> None:
        while (event := self.inbox.get()) is not None:
            if not (isinstance(event, Arrived) and self._answer(event)):
                self._kept.append(event)

    def _answer(self, arrived: Arrived) -> bool:
        """Answer the question whether a server is there; returns whether it was one."""
        try:
            topic = topics.parse_topic(arrived.topic)
            if not isinstance(topic, topics.DeviceTopic) or topic.channel is not topics.Channel.UP:
                return False
            message = messages.decode_message(arrived.payload, federation=self._federation)
        except errors.PeerError:
            return False
        if not isinstance(message, messages.BlobRequest):
            return False
        if (message.device, message.digest) != (topic.device, NO_BLOB):
            return False
        refusal = messages.Refusal(
            federation=self._federation,
            device=message.device,
            digest=message.digest,
            reason=errors.Reason.UNKNOWN_BLOB,
            detail="the server is starting",
        )
        answer = str(topics.DeviceTopic(self._federation, message.device, topics.Channel.DOWN))
        self.connection.link.publish(answer, messages.encode_message(refusal))
        return True


@contextlib.contextmanager
def open_reception(config: Config, address: BrokerAddress, lease: LeaseKeeper | None) -> Iterator[Reception]:
    """Devices get answers as soon as this server holds the lease; raises `ConfigError` if another does."""
    reception = Reception(config, address, lease)
    try:
        if lease is not None:
            lease.await_start()
        if lease is None or lease.holds():
            reception.open()
        yield reception
    finally:
        reception.close()
