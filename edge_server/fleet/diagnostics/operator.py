"""An operator's command that asks devices: a connection of its own, for as long as the answers take."""

import logging
import queue
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from edge_client.transport.broker_link import Arrived, BrokerAddress, Confirmed, Inbox, LinkDown, LinkUp
from edge_client.transport.event_loop import EventLoop
from edge_server.fleet.diagnostics import inquiry as machine
from edge_server.fleet.diagnostics.inquiry import Inquired, Inquiry, Terms
from edge_server.transport.broker_connection import BrokerConnection, check_sender
from schemas import messages, selectors
from schemas.errors import EdgeError, PeerError
from schemas.topics import Channel, DeviceTopic, SiteTopic, device_topic, operator_filters

log = logging.getLogger(__name__)

TICK_S = 0.25
GATHER_S = 2.0  # Seconds in which the broker sends the retained births
CONNECT_S = 15.0


@dataclass(frozen=True)
class Selection:
    """Devices by name, or those connected ones whose labels `where` chooses.

    `own_labels` are the operator's, by device; they win over those of births.
    """

    names: tuple[str, ...] = ()
    where: selectors.Where | None = None
    own_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def needs_births(self) -> bool:
        """Whether births must be known first: to choose by labels, or to reach devices of sites."""
        return self.where is not None or any("." in name for name in self.names)

    def chosen(self, births: Mapping[str, messages.Birth], sites: Mapping[str, str]) -> tuple[str, ...]:
        """The names, and the connected devices that the selector chooses."""
        found = [
            device
            for device, birth in sorted(births.items())
            if self.where is not None and self.where.matches(self._labels(birth, sites.get(device, "")))
        ]
        return tuple(dict.fromkeys((*self.names, *found)))

    def _labels(self, birth: messages.Birth, site: str) -> dict[str, str]:
        labels = {**birth.labels, **self.own_labels.get(birth.device, {})}
        return selectors.selectable(labels, device=birth.device, federation=birth.federation, site=site)


Begun = Callable[[tuple[str, ...]], None]  # Called with the chosen devices before the first is asked


class OperatorConnection:
    """Asks the selected devices once; `run` returns when each has answered, or will not."""

    def __init__(
        self,
        address: BrokerAddress,
        federation: str,
        selection: Selection,
        terms: Terms,
        *,
        patience_s: float,
        begun: Begun = lambda _: None,
    ) -> None:
        self._federation, self._selection, self._terms = federation, selection, terms
        self._patience_s, self._begun = patience_s, begun
        self._inbox: Inbox = queue.SimpleQueue()
        self._connection = BrokerConnection(
            address, self._inbox, federation=federation, role="operator", filters=operator_filters(federation)
        )
        self._births: dict[str, messages.Birth] = {}
        self._sites: dict[str, str] = {}
        self._gone: set[str] = set()
        self._inquiry: Inquiry | None = None
        self._begun_at = 0.0
        self._up_at: float | None = None
        self.loop = EventLoop(
            self._inbox, TICK_S, tick=self._tick, handle=self._handle, on_peer_error=self._on_peer_error
        )

    def run(self) -> dict[str, Inquired]:
        """The devices with their answers; raises `EdgeError` if the broker cannot be reached."""
        self._begun_at = time.monotonic()
        self._connection.link.open()
        try:
            self.loop.run(until=lambda: self._inquiry is not None and self._inquiry.over)
        finally:
            self._connection.link.close()
        assert self._inquiry is not None
        return dict(self._inquiry.devices)

    def _on_peer_error(self, error: PeerError) -> None:
        """Log the first of each reason: a device of another version may repeat it with every message."""
        if self.loop.ignored[error.reason] == 1:
            log.warning("ignored (%s): %s", error.reason, error, extra={"reason": error.reason})

    def _tick(self, now: float) -> None:
        if self._up_at is None and now >= self._begun_at + CONNECT_S:
            raise EdgeError(f"{self._connection.trouble.removesuffix('; trying again')}; look at --broker")
        gather_s = GATHER_S if self._selection.needs_births else 0.0
        if self._inquiry is None and self._up_at is not None and now >= self._up_at + gather_s:
            self._begin(now)
        if self._inquiry is not None:
            self._step(machine.Tick(), now)

    def _begin(self, now: float) -> None:
        devices = self._selection.chosen(self._births, self._sites)
        self._begun(devices)
        request = secrets.token_hex(8)
        self._inquiry = machine.begin(
            self._federation, request, self._terms, devices, ends_at=now + self._patience_s
        )
        for device in self._gone & set(devices):
            self._step(machine.Gone(device), now)

    def _handle(self, event: Any) -> None:
        match event:
            case Arrived() | LinkUp() | LinkDown() | Confirmed():
                now = time.monotonic()
                received = self._connection.receive(event, now)
                if isinstance(event, LinkUp):
                    self._on_connected(now)
                elif isinstance(event, LinkDown) and event.taken_over:
                    raise EdgeError("another command asks devices as this operator: wait until it has ended")
                elif isinstance(event, LinkDown) and event.lasting:
                    raise EdgeError(f"no connection to {self._connection.address}: {event.reason}")
                elif received is not None and received[1]:
                    self._on_message(*received, now)

    def _on_connected(self, now: float) -> None:
        self._up_at = now if self._up_at is None else self._up_at
        self.loop.tick_soon()
        if self._inquiry is not None:
            self._step(machine.Connected(), now)

    def _on_message(self, topic: DeviceTopic | SiteTopic, payload: bytes, now: float) -> None:
        message = messages.decode_message(payload, federation=self._federation)
        check_sender(topic, kind=message.kind, device=str(getattr(message, "device", "")))
        if isinstance(topic, SiteTopic):
            self._sites[topic.device] = topic.site
        else:
            self._sites.pop(topic.device, None)
        match message:
            case messages.Birth():
                self._births[message.device] = message
                self._gone.discard(message.device)
            case messages.Death():
                self._births.pop(message.device, None)
                self._gone.add(message.device)
                if self._inquiry is not None:
                    self._step(machine.Gone(message.device), now)
            case messages.DiagnosticReceipt() | messages.DiagnosticPart() | messages.DiagnosticRefusal() if (
                self._inquiry is not None
            ):
                self._step(machine.Heard(message), now)

    def _step(self, event: machine.Event, now: float) -> None:
        assert self._inquiry is not None
        self._inquiry, requests = machine.step(self._inquiry, event, now)
        for request in requests:
            site = self._sites.get(request.device, "")
            topic = device_topic(self._federation, request.device, Channel.DOWN_FLEET, site)
            self._connection.link.publish(str(topic), messages.encode_message(request))
