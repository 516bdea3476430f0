"""A rollout's edge to the outside world: it carries out what the state machine decides.

A process and a connection of its own: models are rolled out whether or not a run is under way.
"""

from __future__ import annotations

import logging
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from edge_client.system.logging.context import about
from edge_client.transport.broker_address import BrokerAddress
from edge_client.transport.echo_test import Echo
from edge_client.transport.mqtt_client import Arrived, Confirmed, Inbox, Link, LinkDown, LinkUp
from edge_server.releases.rollout import machine
from edge_server.releases.rollout.events import (
    Command,
    Connected,
    Event,
    MessageReceived,
    SendChunks,
    SendMessage,
    Tick,
    Withdrawn,
)
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.releases.rollout.state import Rollout
from schemas.errors import EdgeError, PeerError
from schemas.messages import Birth, BlobRequest, Death, ModelReport, decode_message, encode_message
from schemas.tensors.chunks import BlobRef, encode_chunk
from schemas.topics import Channel, DeviceTopic, echo_topic, parse_topic, rollout_filters
from schemas.values import Reason

log = logging.getLogger(__name__)

TICK_S = 0.25
LONGEST_DELAY_S = 2.0

Show = Callable[[Rollout, str], None]
"""Called with the rollout after each event, and with what is wrong with the link, if anything."""


class Interrupted(EdgeError):
    """The user has ended the process; the rollout is whole and goes on another time."""


class RolloutService:
    """Runs one rollout until it is over; `files` are where the tiers' files lie, by digest."""

    def __init__(
        self,
        rollout: Rollout,
        journal: RolloutJournal,
        address: BrokerAddress,
        files: Mapping[str, Path],
        show: Show,
    ) -> None:
        self._rollout, self._journal, self._files, self._show = rollout, journal, files, show
        self._address = address
        self.inbox: Inbox = queue.SimpleQueue()
        echo = echo_topic(rollout.federation, "rollout")
        self._link = Link(
            address,
            self.inbox,
            client_id=f"{rollout.federation}-rollout",
            filters=(*rollout_filters(rollout.federation), echo),
            longest_delay_s=LONGEST_DELAY_S,
        )
        self._echo = Echo(echo, lambda payload: self._link.echo(echo, payload))
        self._fitted: tuple[int, int] | None = None
        self._session = 0
        self._next_tick = 0.0
        about(federation=rollout.federation)
        self._no_link = f"connecting to {address}"

    def run(self) -> Rollout:
        """Serve until the rollout is over; raises `Interrupted` where it is to go on another time."""
        self._link.open()
        try:
            while not self._rollout.over:
                self._turn()
        finally:
            self._link.close()
        return self._rollout

    def interrupt(self) -> None:
        """End the process soon, and leave the rollout as it is; may be called from a signal handler."""
        self.inbox.put(Interrupted("the rollout is not over: the same command goes on with it"))

    def withdraw(self, why: str) -> None:
        """Take the version back; may be called from another thread."""
        self.inbox.put(Withdrawn(why))

    def _turn(self) -> None:
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + TICK_S
            self._echo.tick(now)
            self._fit()
            self._step(Tick())
        try:
            event = self.inbox.get(timeout=max(0.0, self._next_tick - now))
        except queue.Empty:
            return
        try:
            self._handle(event)
        except PeerError as error:
            log.warning("ignored (%s): %s", error.reason, error, extra={"reason": error.reason})

    def _handle(self, event: Any) -> None:
        match event:
            case Arrived(topic, payload):
                self._arrived(topic, payload)
            case LinkUp():
                self._no_link, self._session = "", event.session
                self._link.handle(event)
                self._echo.connected(event, time.monotonic())
                self._fit()
            case LinkDown(reason):
                self._no_link = f"no connection to {self._address}: {reason}; trying again"
                self._echo.cut()
                self._link.handle(event)
                self._show(self._rollout, self._no_link)
            case Confirmed():
                self._link.handle(event)
            case Withdrawn():
                self._step(event)
            case Interrupted():
                raise event

    def _fit(self) -> None:
        """Say once per connection that it is up, and how large chunks may be: as soon as that is known."""
        found = self._echo.found
        if found is not None and (self._session, found) != self._fitted:
            self._fitted = self._session, found
            self._link.fit(found)
            self._step(Connected(found))

    def _arrived(self, topic: str, payload: bytes) -> None:
        if self._echo.hears(topic, payload, time.monotonic()):
            self._fit()
            return
        where = parse_topic(topic)
        if not isinstance(where, DeviceTopic):
            raise PeerError(f"nothing is expected on {topic}")
        if not payload:
            return
        message = decode_message(payload, federation=self._rollout.federation)
        if not isinstance(message, Birth | Death | ModelReport | BlobRequest):
            raise PeerError(f"'{message.kind}' is not said to a rollout", reason=Reason.UNKNOWN_KIND)
        if message.device != where.device:
            detail = f"'{message.kind}' of {message.device} on the topic of {where.device}"
            raise PeerError(detail, reason=Reason.WRONG_SENDER)
        self._step(MessageReceived(message))

    def _step(self, event: Event) -> None:
        before = self._rollout
        self._rollout, commands = machine.step(before, event, time.monotonic())
        self._journal.save(before, self._rollout)
        for command in commands:
            self._do(command)
        self._show(self._rollout, self._no_link)

    def _do(self, command: Command) -> None:
        match command:
            case SendMessage(device, message):
                self._link.publish(self._topic(device, Channel.DOWN_ROLLOUT), encode_message(message))
            case SendChunks(device, ref, first, count):
                for index in range(first, min(first + count, ref.chunks)):
                    self._link.send_chunk(
                        (device, ref.digest, index),
                        self._topic(device, Channel.DOWN_BLOB),
                        partial(_frame, self._files[ref.digest], ref, index),
                    )

    def _topic(self, device: str, channel: Channel) -> str:
        return str(DeviceTopic(self._rollout.federation, device, channel))


def _frame(path: Path, ref: BlobRef, index: int) -> bytes:
    with path.open("rb") as file:
        file.seek(index * ref.chunk_bytes)
        return encode_chunk(ref.digest, index, file.read(ref.chunk_bytes))
