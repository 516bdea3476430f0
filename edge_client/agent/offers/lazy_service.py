"""Forwards the agent's calls to the runtime of a kind of offer, which is imported with the first offer.

A device is offered a model or a release once in months, and imports delay every start.
"""

from typing import TYPE_CHECKING, Any, ClassVar

from edge_client.agent.offers.trial import Offer, Worked
from edge_client.agent.service import Service, Topic
from edge_client.agent.session.state import Session, SessionPhase
from edge_client.transport.link_events import Arrived, LinkDown, LinkUp
from schemas.tensors.chunks import decode_chunk
from schemas.topics import Channel, DeviceTopic

if TYPE_CHECKING:
    from edge_client.agent.offers.runtime import OfferRuntime


class LazyOfferService(Service):
    """Does nothing until a subclass makes the runtime and hands it to `_use`."""

    offer_type: ClassVar[type[Offer]]
    channel: ClassVar[Channel]

    def __init__(self) -> None:
        self._runtime: OfferRuntime | None = None
        self._connected = False

    def on_connected(self, up: LinkUp, now: float) -> None:
        self._connected = True
        if self._runtime is not None:
            self._runtime.on_connected()

    def on_disconnected(self, down: LinkDown) -> None:
        self._connected = False
        if self._runtime is not None:
            self._runtime.on_disconnected()

    def tick(self, now: float, session: Session) -> None:
        if self._runtime is not None:
            self._runtime.tick(training=session.phase is SessionPhase.WORKING)

    def handle(self, event: Any) -> None:
        """Pass on the end of work on an offer of this kind."""
        is_ours = isinstance(event, Worked) and isinstance(event.work.offer, self.offer_type)
        if self._runtime is not None and is_ours:
            self._runtime.on_worked(event)

    def receive(self, topic: Topic, arrived: Arrived) -> bool:
        """Take offers, withdrawals and chunks of the offered file."""
        match topic:
            case DeviceTopic(channel=Channel.DOWN_BLOB):
                return self._runtime is not None and self._runtime.take_chunk(decode_chunk(arrived.payload))
            case DeviceTopic(channel=self.channel):
                return self._take(arrived.payload)
        return False

    def _take(self, payload: bytes) -> bool:
        """Take a message of the kind's channel; False: it is another service's."""
        raise NotImplementedError

    def stop(self) -> None:
        if self._runtime is not None:
            self._runtime.stop()

    def _use(self, runtime: "OfferRuntime") -> "OfferRuntime":
        self._runtime = runtime
        if self._connected:
            runtime.on_connected()
        return runtime
