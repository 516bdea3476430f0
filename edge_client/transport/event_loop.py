"""The loop of a process or of a thread: one thread handles all events; others only put them into its inbox.

What `tick` and `handle` may raise is treated alike everywhere. A `PeerError` is the fault of somebody else:
it is logged once with its reason, counted, and the loop goes on. Every other exception ends the loop, and
`run` raises it to the loop's owner. Where several parts are called, and one may fail without the others,
each is called by `call_part`.
"""

import logging
import queue
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from schemas.errors import EdgeError, PeerError

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Stop:
    """Event: the user asks the owner of the loop to end."""


class Events(Protocol):
    """An inbox, as the loop sees it."""

    def get(self, *, timeout: float | None) -> Any:
        """The next event; raises `queue.Empty` if none has come after `timeout` seconds."""


class EventLoop:
    """Calls `tick` with the time every `tick_s` seconds, and `handle` with each event of the inbox.

    The time is in seconds of the monotonic clock; without `tick_s` the loop only waits for events. `name`
    begins the lines of the log; with `on_peer_error` the owner logs a `PeerError` itself. `ignored` counts
    them by reason.
    """

    def __init__(
        self,
        inbox: Events,
        tick_s: float | None = None,
        *,
        handle: Callable[[Any], None],
        tick: Callable[[float], None] = lambda now: None,
        name: str = "",
        on_peer_error: Callable[[PeerError], None] | None = None,
    ) -> None:
        self.inbox, self._tick_s, self.tick, self.handle = inbox, tick_s, tick, handle
        self._line = f"{name}: ignored (%s): %s" if name else "ignored (%s): %s"
        self._on_peer_error = on_peer_error or self._log
        self.next_tick = 0.0
        self.ignored: Counter[str] = Counter()

    def run(self, *, until: Callable[[], bool]) -> None:
        """Take turns until there is a reason to end, which is asked for before each tick and each wait."""
        while not until():
            self._take_tick()
            if not until():
                self._take_event()

    def tick_soon(self) -> None:
        """Let the next turn begin with a tick."""
        self.next_tick = 0.0

    def turn(self) -> None:
        """Handle the clock, and one event if one comes before the next tick."""
        self._take_tick()
        self._take_event()

    def _take_tick(self) -> None:
        if self._tick_s is not None and (now := time.monotonic()) >= self.next_tick:
            self.next_tick = now + self._tick_s
            self._call(self.tick, now)

    def _take_event(self) -> None:
        left_s = None if self._tick_s is None else max(0.0, self.next_tick - time.monotonic())
        try:
            event = self.inbox.get(timeout=left_s)
        except queue.Empty:
            return
        self._call(self.handle, event)

    def _call(self, call: Callable[[Any], None], argument: Any) -> None:
        try:
            call(argument)
        except PeerError as error:
            self.ignored[error.reason] += 1
            self._on_peer_error(error)

    def _log(self, error: PeerError) -> None:
        log.warning(self._line, error.reason, error, extra={"reason": error.reason})


def call_part(call: Callable[..., None], *args: Any) -> None:
    """Call one of several parts: its failure is logged, and ends neither the loop nor the other parts."""
    try:
        call(*args)
    except (EdgeError, OSError) as error:
        log.error("%s", error)
    except Exception:
        log.exception("a part of the service has failed")
