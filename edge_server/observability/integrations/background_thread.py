"""A thread that handles an inbox's events and takes a regular turn; errors are logged and end nothing."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

from edge_client.transport.link_events import Inbox
from schemas.errors import PeerError

log = logging.getLogger(__name__)

END_S = 10


class BackgroundThread:
    """Calls `handle` with each event of the inbox and `turn` with the time every `every_s` seconds."""

    def __init__(
        self,
        name: str,
        inbox: Inbox,
        *,
        every_s: float,
        turn: Callable[[float], None],
        handle: Callable[[Any], None],
    ) -> None:
        self._name, self._inbox, self._every_s = name, inbox, every_s
        self._turn, self._handle = turn, handle
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        """Stop the thread and wait up to `END_S` seconds for it."""
        self._ending.set()
        self._thread.join(timeout=END_S)

    def _run(self) -> None:
        next_turn = 0.0
        while not self._ending.is_set():
            now = time.monotonic()
            try:
                if now >= next_turn:
                    next_turn = now + self._every_s
                    self._turn(now)
                self._handle(self._inbox.get(timeout=max(0.0, next_turn - now)))
            except queue.Empty:
                continue
            except PeerError as error:
                extra = {"reason": error.reason}
                log.warning("%s: ignored (%s): %s", self._name, error.reason, error, extra=extra)
            except Exception:
                log.exception("%s: an update was not sent", self._name)
