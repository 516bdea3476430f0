"""The interface of the fleet service's parts."""

from collections.abc import Callable
from dataclasses import dataclass

from edge_server.fleet.settings.service import ServiceSettings
from edge_server.storage.inventory.inventory import Inventory
from edge_server.storage.service_folder import ServiceFolder
from schemas.messages import AnyMessage, Message

Publish = Callable[[str, str, Message], None]
"""Publishes a message on `down/fleet`: federation, device, message."""
Retain = Callable[[str, str, bytes], None]
"""Publishes a retained message on any topic: federation, topic, payload."""


@dataclass(frozen=True)
class ServiceContext:
    """What the parts share. `wake` lets the service tick soon, from any thread."""

    folder: ServiceFolder
    settings: ServiceSettings
    inventory: Inventory
    publish: Publish
    wake: Callable[[], None] = lambda: None
    retain: Retain = lambda federation, topic, payload: None


@dataclass(frozen=True)
class Heard:
    """A message of a device, or of a device behind the gateway of `site`."""

    federation: str
    device: str
    message: AnyMessage
    site: str = ""


class Part:
    """A part of the service, called from its thread; each method does nothing by default.

    `now` is in seconds since 1970. An error in one part is logged, and the other parts go on.
    """

    def on_connected(self, federation: str, now: float) -> None:
        """The connection to a federation's broker stands."""

    def on_disconnected(self, federation: str, why: str) -> None:
        """The connection to a federation's broker is lost; it is made again."""

    def on_message(self, heard: Heard, now: float) -> None:
        """A device has said something: a birth, a death, telemetry, or an answer on its fleet topic."""

    def tick(self, now: float) -> None:
        """Time has passed; called twice a second, and after `wake`."""

    def stop(self) -> None:
        """The service ends."""
