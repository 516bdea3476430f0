"""Runs a rollout: carries out the commands of the state machine.

A separate process with its own connection, so that models are rolled out whether or not a run is in progress.
"""

import math
import queue
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from edge_client.system.logging.formatters import about
from edge_client.transport.broker_link import Arrived, BrokerAddress, Confirmed, Inbox, LinkDown, LinkUp
from edge_client.transport.event_loop import EventLoop
from edge_server.releases.rollout import machine, progress, state
from edge_server.releases.rollout.journal import RolloutJournal
from edge_server.transport.broker_connection import BrokerConnection, check_sender
from schemas.errors import EdgeError, PeerError, Reason
from schemas.messages import Birth, BlobRequest, Death, decode_message, encode_message
from schemas.tensors.chunks import BlobRef, encode_chunk
from schemas.topics import Channel, DeviceTopic, SiteTopic

TICK_S = 0.25

Show = Callable[[state.Rollout, str], None]
"""Called after each event with the rollout, and with why the connection is down, if it is."""


class Interrupted(EdgeError):
    """The user has ended the process; the rollout can be resumed."""


class GaveUp(EdgeError):
    """The rollout has waited for too long, for the broker or for devices."""


class RolloutService:
    """Runs one rollout until it is over; `files` are the paths of the tiers' files, by digest.

    After `give_up_s` seconds in which it could only wait it gives up.
    """

    def __init__(
        self,
        rollout: state.Rollout,
        journal: RolloutJournal,
        address: BrokerAddress,
        files: Mapping[str, Path],
        show: Show,
        *,
        give_up_s: float = math.inf,
    ) -> None:
        self.give_up_s, self._idle_since, self._gave_up = give_up_s, math.inf, ""
        self.rollout, self.journal, self._files, self._show = rollout, journal, files, show
        self.inbox: Inbox = queue.SimpleQueue()
        offering, federation = rollout.offering, rollout.federation
        self.connection = BrokerConnection(
            address,
            self.inbox,
            federation=federation,
            role=offering.role,
            filters=offering.filters(federation),
        )
        self._fitted: tuple[int, int] | None = None
        self.loop = EventLoop(self.inbox, TICK_S, tick=self._tick, handle=self._handle)
        about(federation=rollout.federation)

    def run(self) -> state.Rollout:
        """Serve until the rollout is over; raises `Interrupted` if the user ends the process, or `GaveUp`."""
        self.connection.link.open()
        try:
            self.loop.run(until=lambda: self.rollout.over)
        finally:
            self.connection.link.close()
        if self._gave_up:
            raise GaveUp(f"{self._gave_up}; it has ended before any device was asked")
        return self.rollout

    def interrupt(self) -> None:
        """End the process and leave the rollout as it is; safe in a signal handler."""
        self.inbox.put(Interrupted("the rollout is not finished: the same command continues it"))

    def withdraw(self, why: str) -> None:
        """Withdraw the version; safe in another thread."""
        self.inbox.put(state.Withdrawn(why))

    def _tick(self, now: float) -> None:
        self.connection.echo.tick(now)
        self._fit()
        self._step(state.Tick())
        self._give_up(now)

    def _give_up(self, now: float) -> None:
        """End what has waited for too long; a rollout that devices take part in is left to be continued."""
        waits = self.connection.trouble or progress.waiting_for(self.rollout, now)
        self._idle_since = min(self._idle_since, now) if waits else math.inf
        if now < self._idle_since + self.give_up_s:
            return
        why = f"the rollout gave up after {self.give_up_s:.0f} s (--give-up): {waits}"
        if self.rollout.phase is not state.RolloutPhase.GATHERING:
            raise GaveUp(f"{why}; the same command continues it, and --withdraw takes the version back")
        self._gave_up = why
        self._step(state.Withdrawn(why))

    def _handle(self, event: Any) -> None:
        match event:
            case Arrived() | LinkUp() | LinkDown() | Confirmed():
                received = self.connection.receive(event, time.monotonic())
                if received is not None:
                    self._take(*received)
                elif isinstance(event, LinkDown):
                    self._show(self.rollout, self.connection.trouble)
                else:
                    self._fit()
            case state.Withdrawn():
                self._step(event)
            case Interrupted():
                raise event

    def _fit(self) -> None:
        """Tell the machine once per connection how large chunks may be, as soon as that is known."""
        found, session = self.connection.chunk_bytes, self.connection.session
        if found is not None and (session, found) != self._fitted:
            self._fitted = session, found
            self.connection.link.fit(found)
            self._step(state.Connected(found))

    def _take(self, topic: DeviceTopic | SiteTopic, payload: bytes) -> None:
        if not payload:
            return
        message = decode_message(payload, federation=self.rollout.federation)
        if not isinstance(message, Birth | Death | BlobRequest | self.rollout.offering.reports):
            if topic.channel is Channel.UP_FLEET:
                return  # the answer to an operator
            raise PeerError(f"'{message.kind}' is not a message to a rollout", reason=Reason.UNKNOWN_KIND)
        check_sender(topic, kind=message.kind, device=message.device)
        self._step(state.MessageReceived(message))

    def _step(self, event: state.Event) -> None:
        before = self.rollout
        self.rollout, commands = machine.step(before, event, time.monotonic())
        self.journal.save(before, self.rollout)
        for command in commands:
            self._do(command)
        self._show(self.rollout, self.connection.trouble)

    def _do(self, command: state.Command) -> None:
        match command:
            case state.SendMessage(device, message):
                topic = self._topic(device, self.rollout.offering.down)
                self.connection.link.publish(topic, encode_message(message))
            case state.SendChunks(device, ref, first, count):
                for index in range(first, min(first + count, ref.chunks)):
                    self.connection.link.send_chunk(
                        (device, ref.digest, index),
                        self._topic(device, Channel.DOWN_BLOB),
                        partial(_frame, self._files[ref.digest], ref, index),
                    )

    def _topic(self, device: str, channel: Channel) -> str:
        return str(DeviceTopic(self.rollout.federation, device, channel))


def _frame(path: Path, ref: BlobRef, index: int) -> bytes:
    with path.open("rb") as file:
        file.seek(index * ref.chunk_bytes)
        return encode_chunk(ref.digest, index, file.read(ref.chunk_bytes))
