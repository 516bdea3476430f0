"""Whether this server may write and send: only while it holds the federation's lease."""

import logging
import queue
from collections import deque
from collections.abc import Iterable
from typing import Any

from edge_client.transport.link_events import Inbox
from edge_client.transport.mqtt_client import Link
from edge_server.coordinator.endings import Deposed, Suspended
from edge_server.rounds.events import StopRequested
from edge_server.storage.journal import Journal
from edge_server.transport.lease.holder import in_words
from edge_server.transport.lease.keeper import LeaseKeeper
from edge_server.transport.lease.phases import Lost, Taken
from schemas.messages import Lease

log = logging.getLogger(__name__)

PAUSED_S = 0.05  # Seconds between two looks whether the server may write


class WritingRight:
    """Opens the server's connection while it holds the lease, and pauses it while it does not.

    It may be `linked` already. Without a `lease` the connection is always open. `epoch` is None in the epoch
    in which the run began.
    """

    def __init__(
        self, lease: LeaseKeeper | None, link: Link, journal: Journal, run: str, *, linked: bool = False
    ) -> None:
        self._lease, self._link, self._journal = lease, link, journal
        self._linked, self._noted = linked, False
        self.trouble = ""
        self.epoch: int | None = None
        if lease is not None:
            lease.serve(run)

    @property
    def held_epoch(self) -> int | None:
        """The epoch of the lease that is held now; None without one."""
        if self._lease is None or self._lease.mute or not self._lease.holds():
            return None
        return self._lease.state.epoch

    def exercise(self) -> bool:
        """Connect if the server may write now, and say whether; raises `Deposed` once another one serves."""
        if self._lease is None:
            self._connect()
            return True
        phase = self._lease.state.phase
        if isinstance(phase, Taken | Lost):
            self._end(self._lease, phase.by)
        if not self._lease.holds():
            self._pause(self._lease)
            return False
        if not self._noted and not self._lease.mute:
            self._noted = True
            epoch = self._lease.state.epoch
            first = self._journal.write_epoch(epoch, in_words(self._lease.state.me))
            self.epoch = epoch if epoch > first else None
        self._connect()
        return True

    def _connect(self) -> None:
        if not self._linked:
            self._linked, self.trouble = True, ""
            self._link.open()

    def _pause(self, lease: LeaseKeeper) -> None:
        self.trouble = lease.trouble or "waiting for the lease of the federation"
        if self._linked:
            self._linked = False
            self._link.pause()
            log.info("no renewal of the lease was heard in time: nothing is sent until one is")

    def _end(self, lease: LeaseKeeper, by: Lease) -> None:
        """Stop at once: nothing that is queued may be sent."""
        if self._linked:
            self._linked = False
            self._link.pause()
        lease.check()
        who = f"{in_words(by.holder)}, epoch {by.epoch}"
        raise Deposed(f"another server serves the federation '{lease.state.federation}' now: {who}")


class HeldInbox:
    """The server's inbox as its loop sees it: without the right to write, only the user's wish to end.

    Everything else waits in order, after the `early` events.
    """

    def __init__(self, inbox: Inbox, right: WritingRight, early: Iterable[Any]) -> None:
        self._inbox, self._right, self.waiting = inbox, right, deque(early)

    def get(self, *, timeout: float | None) -> Any:
        """The next event; raises `queue.Empty` if there is none that may be handled now."""
        held = self._right.exercise()
        if held and self.waiting:
            event = self.waiting.popleft()
        else:
            event = self._inbox.get(timeout=timeout if held else PAUSED_S)
        # The process may have been stopped since.
        if isinstance(event, StopRequested | Suspended) or (held and self._right.exercise()):
            return event
        (self.waiting.appendleft if held else self.waiting.append)(event)
        raise queue.Empty
